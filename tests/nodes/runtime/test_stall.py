from absl.testing import absltest

from nodes.runtime.stall import StallWarning
from tests.waiting import wait_until


class TestStallWarning(absltest.TestCase):
  def test_an_explanation_is_requested_once_a_count_has_stalled(self):
    asked = []
    waiting = StallWarning(lambda: asked.append(True) or 'it waits for the actors.', seconds=0.0)
    waiting.check(0)
    self.assertEqual(asked, [])
    with self.assertLogs(level='WARNING') as logs:
      wait_until(lambda: asked, lambda: waiting.check(0))
    self.assertIn('it waits for the actors.', logs.output[0])

  def test_a_count_that_moves_needs_no_explanation(self):
    waiting = StallWarning(self.fail, seconds=0.0)
    for count in range(1000):
      waiting.check(count)
