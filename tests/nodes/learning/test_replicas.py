"""Learners of several processes, on fake CPU devices of their own, against one with all the rows."""

import os
import subprocess
import sys

import jax
import numpy as np
import pytest

from launchers import certificate
from nodes.inference.layout import layout
from nodes.learning import replicas
from tests.ports import unused_port
from tests.programs_under_test import ENVIRONMENT
from tests.waiting import DEADLINE

pytestmark = pytest.mark.slow


def run(directory, num_replicas, learner_devices, *agents):
  """Runs the processes of one job; returns the files that they have written."""
  processes, paths = [], []
  address = f'localhost:{unused_port()}'
  pem = directory / 'certificate.pem'
  pem.write_bytes(certificate.new())
  for replica in range(num_replicas):
    name = f'{num_replicas}-{learner_devices}-{replica}'
    paths.append(directory / f'{name}.npz')
    arguments = (address, num_replicas, replica, learner_devices, paths[-1], *agents)
    with open(directory / f'{name}.log', 'wb') as log:
      processes.append(
        subprocess.Popen(
          [sys.executable, '-m', 'tests.nodes.replica_updates', *map(str, arguments)],
          env={
            **os.environ,
            **ENVIRONMENT,
            certificate.VARIABLE: str(pem),
            'XLA_FLAGS': '--xla_force_host_platform_device_count=2',
          },
          stdout=log,
          stderr=subprocess.STDOUT,
        )
      )
  try:
    for process in processes:
      assert process.wait(timeout=DEADLINE) == 0, _logs(directory)
  finally:
    for process in processes:
      process.kill()
  return [np.load(path) for path in paths]


@pytest.fixture(scope='module')
def results(tmp_path_factory):
  """What each process wrote: {learner_devices: [replica 0, replica 1]}, and 'all' of one process."""
  directory = tmp_path_factory.mktemp('replicas')
  # One job after the other: on a busy machine the replicas of a job have to keep up with each other.
  return {
    'all': run(directory, 1, '0', 'vtrace_normalized', 'r2d2'),
    '1': run(directory, 2, '1', 'vtrace_normalized'),
    '0,1': run(directory, 2, '0,1', 'r2d2'),
  }


def _logs(directory):
  return '\n'.join(f'{p.name}:\n{p.read_text()}' for p in sorted(directory.glob('*.log')))


@pytest.mark.parametrize('agent, learner_devices', [('vtrace_normalized', '1'), ('r2d2', '0,1')])
def test_replicas_hold_the_same_bits_and_learn_what_one_learner_does(
  results, agent, learner_devices
):
  first, second = results[learner_devices]
  [alone] = results['all']
  np.testing.assert_array_equal(first[f'{agent}/params'], second[f'{agent}/params'])
  np.testing.assert_array_equal(first[f'{agent}/losses'], second[f'{agent}/losses'])
  assert alone[f'{agent}/moved'] > 1e-3
  np.testing.assert_allclose(first[f'{agent}/params'], alone[f'{agent}/params'], atol=1e-5, rtol=0)
  np.testing.assert_allclose(first[f'{agent}/losses'], alone[f'{agent}/losses'], rtol=1e-5)


def test_priorities_of_a_replicas_rows_come_back_to_it(results):
  both = [r['r2d2/priorities'] for r in results['0,1']]
  [alone] = results['all']
  assert len(np.unique(alone['r2d2/priorities'])) > 100
  np.testing.assert_allclose(
    np.concatenate(both, axis=1), alone['r2d2/priorities'], rtol=1e-4, atol=1e-6
  )


def test_every_replica_knows_the_actor_steps_of_all(results):
  [alone] = results['all']
  assert alone['r2d2/actor_steps'] == 30
  for name, agent in (('1', 'vtrace_normalized'), ('0,1', 'r2d2')):
    assert [r[f'{agent}/actor_steps'] for r in results[name]] == [3 * (10 + 11)] * 2


def test_groups_of_replicas_number_actors_and_environments_once():
  env_groups = [layout(2, 6, 3, eval_envs=4, replica=r, num_replicas=3) for r in range(3)]
  assert [sorted({s.actor_id for s in part}) for part in env_groups] == [
    ['actor/0', 'actor/3', 'evaluator/0'],
    ['actor/1', 'actor/4'],
    ['actor/2', 'actor/5'],
  ]
  ids = [s.first_environment_id + i for part in env_groups for s in part for i in range(s.num_envs)]
  assert sorted(ids) == list(range(3 * 2 * 6 + 4))


def test_a_device_that_no_process_has_is_named_with_its_flag():
  with pytest.raises(ValueError, match='--learner_devices=0,9 asks for device 9'):
    replicas.local_devices([0, 9], '--learner_devices')
  assert replicas.devices_of_all([0], '--learner_devices') == jax.local_devices()[:1]


def test_the_first_replica_waits_for_hosts_that_come_much_later(monkeypatch):
  given = {}
  monkeypatch.setattr(jax.distributed, 'initialize', lambda *_, **options: given.update(options))
  replicas.initialize('localhost:1', 0, 1)
  assert given['initialization_timeout'] >= 1800
