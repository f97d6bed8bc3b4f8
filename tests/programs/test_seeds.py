"""A walk over all that is random in a program: no two consumers draw the same."""

import collections
import functools
import threading
import types
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from launchpad.nodes import base

from agents.options import make as make_config
from agents.seeding import Seed
from environments import registry as environments
from environments import seeding
from launchers.graph import handles
from nodes.actor import Actor
from nodes.anakin import Anakin
from nodes.anakin_evaluator import AnakinEvaluator
from nodes.evaluator import Evaluator
from nodes.gossip_inference_learner import GossipInferenceLearner
from nodes.gossip_peer import GossipPeer
from nodes.impala_actor import ImpalaActor
from nodes.impala_evaluator import ImpalaEvaluator
from nodes.inference.device import DeviceInference
from nodes.inference_learner import InferenceLearner
from nodes.inference_node import InferenceNode
from nodes.learner import LearnerNode
from nodes.learning import loop
from nodes.relabeller import Relabeller
from nodes.runtime import lifecycle
from programs import registry
from tests.nodes.counter import CounterAgent
from tests.ports import unused_port
from viewing import evaluation
from viewing.jax_batch import JaxBatch
from viewing.local_policy import LocalPolicy

RELABELLERS = {'reanalyse_nodes': 2, 'reanalyse_share': 0.5}
CASES = [
  ('sebulba', {'num_actors': 3, 'env_groups': 2, 'actor_devices': (0, 1)}),
  ('sebulba', {'num_replicas': 2, 'env_groups': 2}),
  ('sebulba', {'num_actors': 4, 'inference_nodes': 2, 'actor_devices': (0, 1)}),
  ('muzero', {'num_actors': 2, 'env_groups': 2, **RELABELLERS}),
  ('qt_opt', {'num_actors': 2, 'env_groups': 2, 'bellman_updaters': 2, 'batch_size': 8}),
  ('r2d2', {'num_actors': 2, 'env_groups': 2}),
  ('r2d2', {'num_actors': 2, 'inference_nodes': 2, 'env_groups': 1}),
  ('impala', {'num_actors': 3}),
  ('gala_sebulba', {'num_peers': 2, 'num_actors': 2, 'env_groups': 2}),
]
COMPILED = ('anakin', 'intrinsic_rewards')
ENVS = {'envs_per_actor': 4, 'eval_envs': 3}


class State(NamedTuple):
  """What the learner keeps of the agent below."""

  params: Any
  learner_steps: Any


class Agent(CounterAgent):
  """Has parameters that are random numbers."""

  def init(self, key):
    return State(jax.random.bits(key, (2,)), jnp.int32(0))

  def initial_priorities(self, unrolls):
    return jnp.ones(len(unrolls.action))


class Silence:
  """Stands for what is not to be started, or asked."""

  def __init__(self, *args, **kwargs):
    del args, kwargs

  def __getattr__(self, name):
    return lambda *args, **kwargs: None


class Published(Silence):
  """A learner's service, which the first parameters are handed to."""

  def __init__(self, draws):
    self._draws = draws

  def set_params(self, version, params):
    self._draws['parameters'].append(tuple(np.asarray(params).tolist()))
    raise lifecycle.Stopped


@pytest.fixture
def draws(monkeypatch, tmp_path):
  """What has been drawn by the nodes that the test runs, by the kind of it."""
  found = collections.defaultdict(list)

  class Device(DeviceInference):
    def __init__(self, *args):
      super().__init__(*args)
      found['actions'] += keys(self._keys)

  def make_environment(*args, **kwargs):
    environment, seed = make(*args, **kwargs), args[2]
    if seed:  # 0 describes an environment that nothing is played in.
      found['environments'] += [('batch', seed), *seeding.spawn(seed, args[1])]
    return environment

  def play(key):
    found['episodes'] += keys(key[None])
    raise lifecycle.Stopped

  make = environments.make
  local_devices = lambda indices, flag, process=None: jax.local_devices()[:1] * len(indices)  # noqa: E731
  for name, value in {
    'environments.registry.make': make_environment,
    'nodes.impala_actor.make_parameter_client': lambda *args: Always(),
    'nodes.actor.RemotePolicy': Silence,
    'nodes.inference.server.InferenceServer.compile': lambda self: None,
    'nodes.inference.server.InferenceServer.start': lambda self: None,
    'nodes.unrolls.writer.UnrollWriter': Silence,
    'nodes.anakin.AnakinLoop': lambda *args: Plays(play),
    'nodes.anakin_evaluator.Evaluation': lambda *args, **options: Plays(play),
    'nodes.anakin_evaluator.rpc.call': lambda *args: ({}, None),
    'nodes.learning.serialisation.from_data': lambda data, template: data,
    'nodes.inference.server.DeviceInference': Device,
    'nodes.runtime.periodic_evaluator.PeriodicEvaluator._run_periodically': evaluate_once,
    'nodes.learning.replicas.devices_of_all': lambda indices, flag: jax.local_devices()[:1],
    'nodes.learning.replicas.local_devices': local_devices,
    'nodes.learning.replicas.warm_up_collectives': lambda devices: None,
    'nodes.learning.replicas.broadcast': lambda tree, replica: tree,
  }.items():
    monkeypatch.setattr(name, value)
  return found


class Always(Silence):
  """Has parameters."""

  def fetch(self, should_stop):
    return True


class Plays:
  """Tells the key that it begins with."""

  replay_bytes = 0

  def __init__(self, play):
    self.init = play
    self.begin = lambda params, key: play(key)
    self.compile = lambda params, key: None


def evaluate_once(self, play, recording=None, prepare=None):
  if isinstance(self, AnakinEvaluator):
    self._anakin = self._monitor = types.SimpleNamespace(futures=Silence())
    play(lambda: True, lambda: False)


def keys(batch):
  return list(map(tuple, np.asarray(jax.random.key_data(batch)).tolist()))


def act(node, draws):
  node.run()


def infer(node, draws):
  node._inbox.close()
  node._make_server().close()


def learn(node, draws):
  """Learns until the first parameters are there; returns what the node has prepared."""
  prepared = loop.prepare(node._make_agent, node._make_environment, node._training)
  with pytest.raises(lifecycle.Stopped):
    loop.train(prepared, node._training, Published(draws), [], None, threading.Event())
  return prepared


def infer_and_learn(node, draws):
  prepared = learn(node, draws)
  node._inbox.close()
  node._make_server(prepared).close()


def play_until_stopped(node, draws):
  with pytest.raises(lifecycle.Stopped):
    node.run()


def relabel(node, draws):
  for number in range(2):
    draws['copies'] += keys(node._keys(number))


AGENTS = 'VTrace', 'PPO', 'R2D2', 'MuZero', 'QTOpt'
# What makes a node draw all that it ever draws by a seed.
HOW = {
  ImpalaActor: act,
  ImpalaEvaluator: act,
  Actor: act,
  Anakin: play_until_stopped,
  AnakinEvaluator: play_until_stopped,
  Evaluator: act,
  GossipPeer: play_until_stopped,
  GossipInferenceLearner: infer_and_learn,
  InferenceLearner: infer_and_learn,
  InferenceNode: infer,
  LearnerNode: learn,
  Relabeller: relabel,
}


def stand_in(value):
  """Returns what takes the place of an argument of a node: of the agent, and of other nodes."""
  if isinstance(value, base.Handle):
    return None
  if isinstance(value, list | tuple) and any(isinstance(v, base.Handle) for v in value):
    return []
  if isinstance(value, functools.partial) and getattr(value.func, 'name', '') in AGENTS:
    return lambda observations, actions: Agent()
  return value


def run(program, draws):
  """Runs those nodes of a program that have a seed; returns how many of each class."""
  classes = {cls.__name__: cls for cls in HOW}
  counts = collections.Counter()
  for node in (each.node for each in handles.nodes(program)):
    args, kwargs = node._args, node._kwargs
    if any(isinstance(getattr(v, 'seed', v), Seed) for v in (*args, *kwargs.values())):
      cls = classes[node._constructor.name]  # One that HOW lacks is to be added there.
      kwargs = {name: stand_in(value) for name, value in kwargs.items() if name != 'courier_kwargs'}
      if cls in (GossipInferenceLearner, InferenceLearner, InferenceNode):
        kwargs['port'] = unused_port()
      HOW[cls](cls(*map(stand_in, args), **kwargs), draws)
      counts[cls] += 1
  return counts


def make(name, tmp_path, **options):
  module = registry.load(name)
  config = make_config(module.Config, run_dir=str(tmp_path), **options).resolve()
  config.validate()
  return module.make_program(config)


def evaluate(draws):
  """Draws what evaluate.py draws with the seed of the programs."""
  seed = Seed(1).child('evaluate')
  evaluation.make_environment(environments, 'catch', '', 3, seed)
  draws['actions'] += keys(LocalPolicy(Agent(), None, 3, seed)._keys)
  draws['actions'] += keys(JaxBatch(None, 3, seed)._keys)


@pytest.mark.slow
@pytest.mark.parametrize('name, options', CASES)
def test_no_two_consumers_share_random_numbers_after_any_restart_and_resume(
  name, options, draws, tmp_path, monkeypatch
):
  num_runs = 0
  for resumes in range(3):
    program = make(name, tmp_path, resumes=resumes, **ENVS, **options)
    for restarts in range(2):
      monkeypatch.setenv(lifecycle.RESTART_COUNT_VARIABLE, str(restarts))
      counts = run(program, draws)
      num_runs += 1
  evaluate(draws)
  actors = counts[Actor] + counts[ImpalaActor]
  groups = options.get('env_groups', 2) if counts[Actor] else 1
  replicas = options.get('num_replicas', options.get('num_peers', 1))
  assert actors == options.get('num_actors', 2) * replicas
  assert counts[Evaluator] + counts[ImpalaEvaluator] == 1
  assert len(set(draws['environments'])) == len(draws['environments'])
  # A number for each batch and each of its environments.
  batches, size = actors * groups + 1, actors * ENVS['envs_per_actor'] + ENVS['eval_envs']
  assert len(draws['environments']) == num_runs * (batches + size) + 1 + 3
  assert len(set(draws['actions'])) == len(draws['actions']) == num_runs * size + 3 + 3
  # Two batches of 8 unrolls: half of MuZero's batches, all of QT-Opt's.
  relabellers = counts[Relabeller]
  assert relabellers == options.get('reanalyse_nodes', options.get('bellman_updaters', 0))
  assert len(set(draws['copies'])) == len(draws['copies']) == num_runs * relabellers * 2 * 8
  assert not set(draws['copies']) & set(draws['actions'])
  # The parameters are one for all replicas, and begin the same after every restart without a checkpoint.
  learners = counts[InferenceLearner] + counts[LearnerNode] + counts[GossipInferenceLearner]
  assert len(draws['parameters']) == num_runs * learners
  assert len(set(draws['parameters'])) == 3
  assert not set(draws['parameters']) & set(draws['actions'])


@pytest.mark.parametrize('program_name', COMPILED)
def test_a_run_of_anakin_is_the_same_after_any_restarts(draws, tmp_path, monkeypatch, program_name):
  for resumes in range(3):
    program = make(program_name, tmp_path, resumes=resumes, num_envs=8, eval_envs=3)
    for restarts in range(2):
      monkeypatch.setenv(lifecycle.RESTART_COUNT_VARIABLE, str(restarts))
      assert run(program, draws) == {Anakin: 1, AnakinEvaluator: 1}
  evaluate(draws)
  assert len(draws['episodes']) == 12 and len(set(draws['episodes'])) == 2
  assert not set(draws['episodes']) & set(draws['actions'])


def test_peers_share_no_random_numbers_and_the_first_has_those_of_anakin(draws, tmp_path):
  run(make('anakin', tmp_path, num_envs=8, eval_envs=3), draws)
  program = make('gala', tmp_path, num_peers=3, num_envs=8, eval_envs=3)
  assert run(program, draws) == {GossipPeer: 3, AnakinEvaluator: 1}
  assert len(draws['episodes']) == 6 and len(set(draws['episodes'])) == 4


def test_every_program_is_covered():
  assert {name for name, _ in CASES} | {*COMPILED, 'gala'} == set(registry.PROGRAMS)
