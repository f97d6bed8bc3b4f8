"""Runs the user's copy of CleanRL's PPO on envpool within XLA; prints its progress as JSON lines.

python cleanrl_driver.py SETTINGS   JSON: the common settings, `script`, and `started`, in Unix time

The script, ppo_atari_envpool_xla_jax_scan.py, plays Atari games with the Nature network. For CartPole
its `envpool` and `Network` are replaced after it has defined them; what it then runs is its own.
"""

from __future__ import annotations

import ast
import functools
import json
import sys
import types
from typing import Any

import envpool_games
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax.linen.initializers import constant, orthogonal
from printed import Listener
from progress import Progress


class Mlp(nn.Module):
  """Dense layers in place of the script's convolutions, initialised as the script's."""

  sizes: tuple[int, ...]

  @nn.compact
  def __call__(self, x: jax.Array) -> jax.Array:
    """Maps `[N, D]` to `[N, sizes[-1]]`."""
    for size in self.sizes:
      dense = nn.Dense(size, kernel_init=orthogonal(np.sqrt(2)), bias_init=constant(0.0))
      x = nn.relu(dense(x))
    return x


class CartPole:
  """Envpool's CartPole, with what the script expects from the `info` of Atari."""

  def __init__(self, envs: Any):
    self._envs = envs

  def __getattr__(self, name: str) -> Any:
    return getattr(self._envs, name)

  def xla(self) -> tuple[Any, Any, Any, Any]:
    """Returns envpool's handle and functions; a step has `reward` and `terminated` in `info`."""
    handle, receive, send, step = self._envs.xla()

    def step_with_info(handle: Any, action: jax.Array) -> Any:
      handle, (observation, reward, done, info) = step(handle, action)
      truncated = info['TimeLimit.truncated']
      terminated = (done & ~truncated).astype(jnp.int32)
      info = {'reward': reward, 'terminated': terminated, 'TimeLimit.truncated': truncated}
      return handle, (observation, reward, done, info)

    return handle, receive, send, step_with_info


def make_environments(settings: dict[str, Any], env_id: str, **given: Any) -> Any:
  """Makes the environments for the script's call of `envpool.make`, as the common settings say."""
  import envpool

  sizes = {name: given[name] for name in ('env_type', 'num_envs', 'seed')}
  if settings['env'] == 'cartpole':
    return CartPole(envpool.make('CartPole-v1', **sizes))
  return envpool.make(env_id, **sizes, **envpool_games.options(settings['game']))


def arguments(settings: dict[str, Any]) -> list[str]:
  """Returns the settings as flags of the script."""
  environments = settings['num_actors'] * settings['envs_per_actor']
  values = {
    'env-id': f'{settings["env"].partition(":")[2] or "CartPole"}-v5',
    'seed': settings['seed'],
    'num-envs': environments,
    'num-steps': settings['unroll_length'],
    'num-minibatches': environments // settings['batch_size'],
    'update-epochs': 1,
    'gamma': settings['discount'],
    'learning-rate': settings['learning_rate'],
    'max-grad-norm': settings['max_gradient_norm'],
    'ent-coef': settings['entropy_cost'],
    'vf-coef': settings['baseline_cost'],
    'total-timesteps': 1 << 40,
  }
  return [*(f'--{name}={value}' for name, value in values.items()), '--no-anneal-lr']


class NoWriter:
  """Stands in for TensorBoard's writer, so that PyTorch is not needed."""

  def __init__(self, directory: str):
    del directory

  def __getattr__(self, name: str) -> Any:
    return lambda *values: None


def define(script: str) -> tuple[types.ModuleType, ast.Module]:
  """Returns the script as a module, with its definitions only, and what it runs as a program."""
  with open(script) as f:
    *definitions, program = ast.parse(f.read()).body
  assert isinstance(program, ast.If), f'{script} does not end with `if __name__ == "__main__"`'
  module = types.ModuleType('cleanrl_script')
  module.__file__ = script
  sys.modules[module.__name__] = module
  exec(compile(ast.Module(definitions, []), script, 'exec', dont_inherit=True), vars(module))
  return module, ast.Module(program.body, [])


def main() -> None:
  """Trains."""
  settings = json.loads(sys.argv[1])
  writer = types.ModuleType('torch.utils.tensorboard')
  writer.SummaryWriter = NoWriter  # type: ignore[attr-defined]
  sys.modules[writer.__name__] = writer
  module, program = define(settings['script'])
  names = vars(module)
  names['envpool'] = types.SimpleNamespace(make=functools.partial(make_environments, settings))
  if settings['torso'] == 'mlp':
    names['Network'] = functools.partial(Mlp, tuple(settings['mlp_sizes']))
  else:
    # Within a loop, XLA computes convolutions on CPUs more than ten times slower.
    jax.lax.scan = functools.partial(jax.lax.scan, unroll=settings['unroll_length'])
  sys.argv = [settings['script'], *arguments(settings)]
  sys.stdout = Listener(Progress(settings['started']))
  exec(compile(program, settings['script'], 'exec', dont_inherit=True), names)


if __name__ == '__main__':
  main()
