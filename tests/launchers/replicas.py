"""Two replicas of Sebulba on an engine, of which one is killed."""

import json
import re

from rundir import curves

FLAGS = (
  *('--num_replicas=2', '--num_steps=60000', '--num_actors=1', '--envs_per_actor=8'),
  *('--batch_size=4', '--eval_episodes=10', '--checkpoint_period=1'),
)


def learn(run_dir):
  """Returns whether both replicas have learned something."""
  return all(curves.read(str(run_dir), f'inference_learner/{i}', 'learner_steps') for i in range(2))


def check_ended(run_dir, code, output):
  """Asserts that a run ended well after the first replica was killed once.

  Args:
    run_dir: the run directory.
    code: exit code of launch.py.
    output: what it printed.
  """
  assert code == 0, output
  killed = (
    r'node inference_learner/0 on \S+ was killed by SIGKILL; restarting all 2 nodes of its job'
  )
  assert re.search(killed, output)
  assert output.count('; restarting') == 1, output
  check_summary(run_dir)


def check_summary(run_dir):
  """Asserts that both replicas have trained to the same parameters."""
  summary = json.loads((run_dir / 'summary.json').read_text())
  first, second = summary['learners'].values()
  assert first['params_crc32'] == second['params_crc32']
  assert first['learner_steps'] == second['learner_steps'] > 0
  assert first['actor_steps'] + second['actor_steps'] == summary['actor_steps'] >= 60000
