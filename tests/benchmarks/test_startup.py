"""The benchmark of start-up, at its smallest."""

import pytest

from tests.benchmarks import smoke


@pytest.mark.nightly
def test_the_phases_add_up_to_the_first_learner_step(tmp_path):
  flags = ('--repeats=1', '--imports=actor', *smoke.SMALL)
  lines, record = smoke.run('startup', tmp_path, 'startup-sebulba-catch', *flags)
  phases = record['phases']
  assert [line.split('  ')[0] for line in lines[2 : 2 + len(phases)]] == list(phases)
  assert len(phases) == 5 and min(phases.values()) >= 0
  assert sum(phases.values()) == pytest.approx(record['seconds_to_first_learner_step'])
  assert {'jit(act)', 'jit(checked)'} <= set(record['compiled'])
  assert record['nodes']['inference_learner-0']['cpu'] > record['nodes']['actor-0']['cpu'] > 0
  assert list(record['imports']) == ['actor'] and record['imports']['actor']['cpu'] > 0
