"""Peers, with real servers and without a launcher."""

import threading
import types

import jax
import numpy as np
import optax
import pytest

from agents.anakin.environments.catch import Catch
from agents.seeding import Seed
from agents.vtrace.agent import VTrace
from agents.vtrace.config import VTraceConfig
from nodes.anakin import Anakin
from nodes.gossip.options import ASYNC, BLOCKING, GossipOptions, Peer
from nodes.learning.options import LoopOptions
from nodes.monitor import Monitor
from nodes.runtime import lifecycle
from nodes.runtime.options import RunOptions
from rundir import final_params, learners
from tests.waiting import DEADLINE, wait_until


def make_agent(observation_spec, action_spec):
  config = VTraceConfig(unroll_length=5, mlp_sizes=(16,), learning_rate=1e-2)
  return VTrace(config, observation_spec, action_spec)


LOOP = LoopOptions(num_envs=8, num_devices=1, updates_per_call=1)


def make_peer(
  run_dir, make_agent, monitor, successors, peer, num_peers, gossip=BLOCKING, num_steps=250
):
  run = RunOptions(num_steps=num_steps, run_dir=str(run_dir), checkpoint_period=1e9)
  options = GossipOptions(num_peers=num_peers, gossip=gossip, gossip_timeout=DEADLINE)
  seeds = [Seed(1).child('peer', k) for k in (peer, 0)]
  return Anakin(
    make_agent,
    Catch,
    monitor,
    LOOP,
    run,
    seed=seeds[0],
    name=f'peer/{peer}',
    peer=Peer(options, peer, successors),
    params_seed=seeds[1],
  )


class Late:
  """Stands for the client of a node that is made later."""

  def __getattr__(self, name):
    return getattr(self.client, name)


def start(nodes, monitor, stop, until=None):
  """Runs nodes until they have finished training, or until a condition holds; then stops them."""
  until = until or (lambda: monitor.progress()['finished'])
  errors = []

  def run(node):
    try:
      node.run()
    except BaseException as error:
      errors.append(error)

  threads = [threading.Thread(target=run, args=(node,), daemon=True) for node in nodes]
  for thread in threads:
    thread.start()
  wait_until(until, lambda: errors and pytest.fail(str(errors)), DEADLINE)
  stop.set()
  for thread in threads:
    thread.join(DEADLINE)
    assert not thread.is_alive()
  assert not errors
  stop.clear()


def make_peers(run_dir, connect, monitor, num_peers, make_agent=make_agent, **options):
  clients = [Late() for _ in range(num_peers)]
  nodes = []
  for k in range(num_peers):
    successors = [clients[(k + 1) % num_peers]] if num_peers > 1 else []
    nodes.append(make_peer(run_dir, make_agent, monitor, successors, k, num_peers, **options))
    clients[k].client = connect(nodes[k])
  return nodes


def train(run_dir, connect, stop, num_peers, **options):
  """Lets peers train to their end; returns the monitor's counts and each peer's final parameters."""
  run_dir.mkdir(exist_ok=True)
  monitor = Monitor(str(run_dir), 500, evaluators=[], num_learners=num_peers)
  start(make_peers(run_dir, connect, connect(monitor), num_peers, **options), monitor, stop)
  return monitor.status(), finals(run_dir, num_peers)


def finals(run_dir, num_peers):
  paths = [
    final_params.path(learners.directory(str(run_dir), learner)) for learner in range(num_peers)
  ]
  contents = []
  for path in paths:
    with open(path, 'rb') as f:
      contents.append(f.read())
  return contents


@pytest.mark.slow
def test_one_peer_alone_is_the_plain_program_bit_for_bit(tmp_path, connect, stop):
  _, (alone,) = train(tmp_path / 'alone', connect, stop, num_peers=1)
  plain = tmp_path / 'plain'
  plain.mkdir()
  monitor = Monitor(str(plain), 500, evaluators=[])
  run = RunOptions(num_steps=250, run_dir=str(plain), checkpoint_period=1e9)
  node = Anakin(
    make_agent, Catch, connect(monitor), LOOP, run, seed=Seed(1).child('peer', 0), name='peer/0'
  )
  start([node], monitor, stop)
  assert finals(plain, 1) == [alone]


@pytest.mark.slow
def test_blocking_peers_agree_after_each_round_also_when_resumed(tmp_path, connect, stop):
  status, (zero, one) = train(tmp_path / 'straight', connect, stop, num_peers=2)
  assert zero == one
  for peer in ('peer/0', 'peer/1'):
    latest = status['latest'][peer]
    # Seven calls of 8 x 5 rows, of which at least 250 are decisions.
    assert latest['gossip_received'] == latest['gossip_sent'] == latest['learner_steps'] == 7
    assert latest['gossip_distance'] > 0.0  # Each has learned from environments of its own.
  total = sum(status['latest'][peer]['actor_steps'] for peer in ('peer/0', 'peer/1'))
  assert status['counts'] | {'learner_steps': 7, 'actor_steps': total} == status['counts']
  assert learners.counts(str(tmp_path / 'straight')) == status['counts']

  train(tmp_path / 'halted', connect, stop, num_peers=2, num_steps=100)
  _, resumed = train(tmp_path / 'halted', connect, stop, num_peers=2)
  assert resumed == [zero, one]


@pytest.mark.slow
def test_a_peer_that_resumes_after_its_end_tells_its_successors(tmp_path, connect, stop):
  train(tmp_path, connect, stop, num_peers=2, num_steps=40)
  monitor = Monitor(str(tmp_path), 500, evaluators=[], num_learners=2)
  peers = make_peers(tmp_path, connect, connect(monitor), 2, num_steps=40)
  start(peers, monitor, stop)
  for k, peer in enumerate(peers):
    assert (
      peer._training._counts()['actor_steps'] >= 40 and not peer._mixer.measure()['gossip_sent']
    )
    assert peer._mixer._exchange.mailbox.wait(1 - k, 0.0), 'it would wait for the other'


def schedules(opt_state):
  leaves = jax.tree.leaves(opt_state, is_leaf=lambda x: isinstance(x, optax.ScaleByScheduleState))
  return [leaf for leaf in leaves if isinstance(leaf, optax.ScaleByScheduleState)]


@pytest.mark.slow
@pytest.mark.parametrize('steps', [3, 2**31 + 3])  # The second is more than an int32 counts.
def test_a_peer_without_a_checkpoint_starts_with_a_neighbours_parameters(
  tmp_path, connect, stop, monkeypatch, steps
):
  def hardly_learning(*specs):
    return VTrace(VTraceConfig(unroll_length=5, mlp_sizes=(16,), learning_rate=1e-30), *specs)

  monitor = Monitor(str(tmp_path), 10**9, evaluators=[], num_learners=2)
  client = connect(monitor)
  neighbour, _ = make_peers(tmp_path, connect, client, 2, hardly_learning)
  counts = {'actor_steps': 100, 'environment_frames': 100, 'learner_steps': steps}
  monkeypatch.setenv(lifecycle.RESTART_COUNT_VARIABLE, '1')
  agent = hardly_learning(Catch().observation_spec, Catch().action_spec)
  params = agent.init(Seed(5).key()).params
  neighbour._training = types.SimpleNamespace(published=(counts, params))
  neighbour._gate.open()
  successors = [connect(neighbour)]
  restarted = make_peer(tmp_path, hardly_learning, client, successors, 1, 2, gossip=ASYNC)
  learner_steps = lambda: monitor.status()['counts'].get('learner_steps', 0)  # noqa: E731
  start([restarted], monitor, stop, lambda: learner_steps() > steps)
  done_counts, _ = restarted.get_params()
  assert done_counts['actor_steps'] > 100
  found = jax.device_get(restarted._training._state.learner)
  done = done_counts['learner_steps']
  assert steps < done < steps + 1000 and (done - int(found.learner_steps)) % 2**32 == 0
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-9), found.params, params)
  # The learning rate is that of the neighbour's learner steps.
  assert min(done, 2**31 - 1) in [state.count for state in schedules(found.opt_state)]
