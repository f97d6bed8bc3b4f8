"""Two replicas, of which one is killed or suspended."""

import json
import re
import signal

import psutil

from rundir import curves
from tests.waiting import DEADLINE

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


def stop_while_the_second_is_suspended(program, group):
  """Asserts that Ctrl-C ends the first replica although it waits for the second.

  Args:
    program: a started program with two replicas that train.
    group: of the replicas.

  Returns:
    What the launcher printed, and its errors.
  """
  nodes = program.nodes()
  nodes[f'{group}-1'].suspend()  # The other soon waits for it, inside an update.
  program.launcher.send_signal(signal.SIGINT)
  assert psutil.wait_procs([nodes[f'{group}-0']], timeout=DEADLINE)[1] == []
  nodes[f'{group}-1'].resume()
  code, output, errors = program.end()
  assert code == 130
  killed = re.findall('killed .* after SIGTERM: .*', errors)  # The suspended one may be among them.
  assert not [line for line in killed if f'{group}/0' in line]
  return output, errors
