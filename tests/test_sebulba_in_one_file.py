"""The one-file Sebulba: the same targets, loss and update as agents/vtrace, and it learns on its own."""

from __future__ import annotations

import dataclasses
import functools
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import threading

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from acme import specs

from agents.types import Timestep, Unroll
from agents.vtrace.agent import VTrace
from agents.vtrace.config import VTraceConfig
from agents.vtrace.targets import vtrace
from environments.catch import Catch
from examples import sebulba_in_one_file as one_file

PATH = pathlib.Path(one_file.__file__)
LAST, FIRST = one_file.LAST, one_file.FIRST
# No two factors of the loss are equal, so none can stand in for another.
OPTIONS = one_file.Options(
  env='catch',
  envs_per_actor=6,
  learning_rate=0.01,
  discount=0.9,
  rho_bar=1.1,
  c_bar=0.7,
  baseline_cost=0.3,
  entropy_cost=0.05,
  reward_scale=0.5,
)
SHARED_OPTIONS = (
  'unroll_length',
  'learning_rate',
  'max_gradient_norm',
  'discount',
  'rho_bar',
  'c_bar',
  'baseline_cost',
  'entropy_cost',
  'reward_scale',
)


def params_of(options, seed):
  """Returns the network of an environment, and parameters whose policy is far from uniform."""
  environment, _ = one_file.ENVIRONMENTS[options.env]
  network = one_file.Network(environment.num_actions)
  params = network.init(jax.random.key(seed), np.zeros((1, environment.num_features)))
  kernel = params['params']['logits']['kernel']
  params['params']['logits']['kernel'] = 30 * kernel
  return network, params


@functools.cache
def played(env):
  """Returns two successive unrolls of an actor thread with constant parameters of version 5."""
  options = dataclasses.replace(OPTIONS, env=env)
  network, params = params_of(options, seed=0)
  device = jax.local_devices()[0]
  shared = one_file.Shared(queue_size=1)
  shared.publish(5, params, [device])
  actor = threading.Thread(target=one_file.run_actor, args=(shared, options, network, device, 1, 2))
  actor.start()
  unrolls = [shared.unrolls.get(timeout=60) for _ in range(2)]
  shared.stop.set()
  actor.join(timeout=60)
  assert not actor.is_alive()
  return unrolls


def test_targets_are_those_of_agents_vtrace():
  random = np.random.default_rng(0)
  values = random.normal(size=(8, 5)).astype(np.float32)
  rewards, discounts, rhos = random.uniform(size=(3, 7, 5)).astype(np.float32)
  valid = random.uniform(size=(7, 5)) < 0.7
  targets, advantages = one_file.vtrace(values, rewards, discounts, 2 * rhos, valid, OPTIONS)
  expected = vtrace(
    values, rewards, discounts, 2 * rhos, valid, rho_bar=OPTIONS.rho_bar, c_bar=OPTIONS.c_bar
  )
  np.testing.assert_allclose(targets, expected.values, rtol=1e-5)
  np.testing.assert_allclose(advantages, expected.advantages, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize('env', ['catch', 'cartpole'])
def test_an_update_on_the_same_rows_is_that_of_agents_vtrace(env):
  options = dataclasses.replace(OPTIONS, env=env)
  _, rows = played(env)
  # Every other environment is cut off where it terminated, so that its LAST rows bootstrap.
  step_type, discount = rows.timestep.step_type, rows.timestep.discount.copy()
  assert (step_type[:-1] == LAST).any()
  discount[:, ::2] = 1
  rows = rows._replace(timestep=rows.timestep._replace(discount=discount))
  network, params = params_of(options, seed=3)  # The learner is not the policy that acted.
  state = params, one_file.make_optimizer(options).init(params)
  rate = np.float32(options.learning_rate)
  update = jax.jit(functools.partial(one_file.update, network, options))
  (after, opt_state), metrics = update(state, rows, rate)

  environment, _ = one_file.ENVIRONMENTS[env]
  agent = VTrace(
    VTraceConfig(**{name: getattr(options, name) for name in SHARED_OPTIONS}),
    specs.Array((environment.num_features,), np.float32),
    specs.DiscreteArray(environment.num_actions),
  )
  ours = agent.init(jax.random.key(0))._replace(params=as_ours(params))
  output = jax.jit(agent.update)(ours, unroll_of(rows))
  for name in ('loss', 'entropy', 'rho'):
    np.testing.assert_allclose(metrics[name], output.metrics[name], rtol=1e-4, err_msg=name)
  assert abs(metrics['rho'] - 1) > 0.01
  # After one step, Adam's first moment is a tenth of the gradient.
  moments = [optax.tree.get(x, 'mu') for x in (opt_state, output.state.opt_state)]
  close = functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-6)
  jax.tree.map(close, as_ours(moments[0]), moments[1])
  jax.tree.map(functools.partial(close, atol=1e-4), as_ours(after), output.state.params)


def as_ours(params):
  """Returns parameters of the one file as those of the repository's network."""
  layers = params['params']
  torso = {name: layers[name] for name in ('Dense_0', 'Dense_1')}
  return {'params': {'torso': torso, 'head': {name: layers[name] for name in ('logits', 'value')}}}


def unroll_of(rows):
  """Returns rows `[T+1, B]` as the repository's `Unroll`, `[B, T+1]`."""
  rows = jax.tree.map(lambda x: np.swapaxes(x, 0, 1), rows)
  return Unroll(
    timestep=Timestep(*rows.timestep),
    action=rows.action,
    extras={'behaviour_logits': rows.behaviour_logits},
    policy_version=rows.policy_version,
    core_state={},
    environment_id=np.arange(len(rows.action), dtype=np.int32),
  )


@pytest.mark.parametrize('env', ['catch', 'cartpole'])
def test_an_actors_unrolls_keep_the_contract_of_rows(env):
  options = dataclasses.replace(OPTIONS, env=env)
  network, params = params_of(options, seed=0)
  first, second = played(env)
  jax.tree.map(lambda a, b: np.testing.assert_array_equal(a[-1], b[0]), first, second)
  rows = jax.tree.map(lambda a, b: np.concatenate([a[:-1], b]), first, second)
  assert len(rows.action) == 2 * options.unroll_length + 1
  assert (rows.policy_version == 5).all()
  logits, _ = jax.jit(network.apply)(params, rows.timestep.observation)
  np.testing.assert_allclose(rows.behaviour_logits, logits, rtol=1e-4, atol=1e-5)
  step_type, reward, discount, _ = rows.timestep
  np.testing.assert_array_equal(step_type[1:] == FIRST, step_type[:-1] == LAST)
  assert (reward[step_type == FIRST] == 0).all() and (discount[step_type == FIRST] == 1).all()
  assert (discount[step_type == LAST] == 0).all()


def test_its_catch_is_ours():
  mine, ours = one_file.Catch(4, seed=7), Catch(4, seed=7)
  random = np.random.default_rng(0)
  timesteps = [(mine.reset(), ours.reset())]
  for _ in range(25):
    action = random.integers(3, size=4).astype(np.int32)
    timesteps.append((mine.step(action), ours.step(action)))
  for x, y in timesteps:
    np.testing.assert_array_equal(x.step_type, y.step_type)
    np.testing.assert_array_equal(x.reward, y.reward)
    np.testing.assert_array_equal(x.discount, y.discount)
    np.testing.assert_array_equal(x.observation, y.observation.reshape(4, -1))


def test_a_cartpole_that_still_stands_is_cut_off_and_not_terminated():
  environment = one_file.CartPole(3, seed=0)
  timestep = environment.reset()
  for _ in range(500):
    assert (timestep.step_type != LAST).all()
    # Pushes the cart under the pole, and the pole towards the middle.
    side = timestep.observation @ np.array([0.1, 0.3, 3.0, 1.0])
    timestep = environment.step((side > 0).astype(np.int32))
  assert (timestep.step_type == LAST).all() and (timestep.discount == 1).all()


def test_an_error_in_an_actor_ends_the_program_with_it(monkeypatch):
  class Broken(one_file.Catch):
    def step(self, action):
      raise OSError('the game is gone')

  monkeypatch.setitem(one_file.ENVIRONMENTS, 'catch', (Broken, {}))
  with pytest.raises(OSError, match='the game is gone'):
    one_file.train(one_file.Options(eval_seconds=1000.0))


def start(folder, *flags, **environment):
  """Starts a copy of the file in a folder where nothing of the repository can be imported."""
  shutil.copy(PATH, folder)
  inherited = {name: x for name, x in os.environ.items() if name != 'PYTHONPATH'}
  return subprocess.Popen(
    [sys.executable, PATH.name, *flags],
    cwd=folder,
    env={**inherited, 'JAX_PLATFORMS': 'cpu', **environment},
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
  )


@pytest.mark.slow
def test_it_learns_catch(tmp_path):
  process = start(tmp_path)
  printed, errors = process.communicate(timeout=200)
  assert process.returncode == 0, errors
  returns = [float(x) for x in re.findall(r'return (\S+) after', printed)]
  assert returns[-1] > 0.9, printed


@pytest.mark.slow
def test_a_batch_is_learned_from_on_several_devices(tmp_path):
  # The flag of agents/sharding.py's tests: sums that may overtake each other block fake devices.
  flags = (
    '--xla_force_host_platform_device_count=3 '
    '--xla_cpu_enable_concurrency_optimized_scheduler=false'
  )
  process = start(tmp_path, '--num_steps=20000', XLA_FLAGS=flags)
  printed, errors = process.communicate(timeout=200)
  assert process.returncode == 0, errors
  assert float(re.findall(r'return (\S+) after', printed)[-1]) > -0.5, printed


@pytest.mark.slow
def test_ctrl_c_ends_it_at_once(tmp_path):
  process = start(tmp_path, '--num_steps=1000000000', '--eval_seconds=0.1')
  try:
    while 'steps/s' not in (line := process.stdout.readline()):
      assert line, process.stderr.read()
    process.send_signal(signal.SIGINT)
    printed, errors = process.communicate(timeout=60)
  finally:
    process.kill()
  assert process.returncode == 130, errors
  assert 'stopped by Ctrl-C' in printed and 'Traceback' not in errors


@pytest.mark.parametrize(
  'flags, complaint',
  [
    (['--batch_size=40'], 'make --batch_size a multiple of --envs_per_actor=16'),
    (['--env=chess'], 'invalid choice'),
  ],
)
def test_unusable_options_are_reported(flags, complaint, capsys):
  with pytest.raises(SystemExit) as error:
    one_file.train(one_file.parse(flags))
  assert complaint in f'{error.value}{capsys.readouterr().err}'


def test_flags_come_before_what_suits_the_environment():
  options = one_file.parse(['--env=cartpole', '--num_steps=7'])
  assert options.num_steps == 7
  assert options.reward_scale != one_file.Options.reward_scale


def test_the_loss_reads_no_row_beyond_the_last_transition():
  """The bootstrap row has a value and no action."""
  _, rows = played('cartpole')
  options = dataclasses.replace(OPTIONS, env='cartpole')
  network, params = params_of(options, seed=3)
  loss = jax.jit(lambda rows: one_file.loss(params, network, options, rows)[0])
  changed = rows._replace(action=rows.action.copy(), behaviour_logits=rows.behaviour_logits.copy())
  changed.action[-1] = 1 - rows.action[-1]
  changed.behaviour_logits[-1] += jnp.array([3.0, 0.0])
  assert loss(changed) == loss(rows)
