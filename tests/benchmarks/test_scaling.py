"""The benchmark of a program's size, at its smallest."""

import pytest
from absl import flags

from benchmarks import scaling
from tests.benchmarks import smoke


@pytest.mark.nightly
def test_a_program_is_launched_for_every_size(tmp_path):
  flags = ('--sweeps=actors', '--actors=1', '--seconds=1', '--warm_up=0', *smoke.SMALL)
  lines, record = smoke.run('scaling', tmp_path, 'scaling-actors-sebulba-catch', *flags)
  assert lines[2].split()[0] == '1'
  (row,) = record['rows']
  assert row['flags']['num_actors'] == '1' and row['groups']['actor']['nodes'] == 1
  assert row['steps_per_second'] > 0 and row['learned_steps_per_second'] > 0
  assert row['groups']['actor']['memory'] > 10 * 2**20
  assert row['seconds_to_first_learner_step'] > 0


def test_what_an_actor_adds_is_a_slope():
  rows = [
    {
      'point': str(n),
      'nodes': {'learner': {'memory': 1000}, **{f'actor-{i}': {'memory': 7} for i in range(n)}},
      'seconds_to_first_learner_step': 10 + 0.5 * n,
    }
    for n in (1, 2, 4)
  ]
  assert scaling.for_each_actor(rows) == pytest.approx({'memory': 7, 'seconds': 0.5})


def test_a_split_names_devices_by_ranges():
  assert scaling.split('0-1:2-7') == {
    'actor_devices': (0, 1),
    'learner_devices': (2, 3, 4, 5, 6, 7),
  }
  assert scaling.split('0:0') == {'actor_devices': (0,), 'learner_devices': (0,)}


def test_the_batch_size_divides_over_the_learner_devices_of_every_split():
  for text in flags.FLAGS['splits'].default:
    assert (
      flags.FLAGS['split_batch_size'].default % len(scaling.split(text)['learner_devices']) == 0
    )
