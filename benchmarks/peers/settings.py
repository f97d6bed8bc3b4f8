"""The common settings of all systems, taken from the options of our own programs."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from agents import options
from environments import registry as environments
from programs import registry as programs
from programs.options import configs

# Our programs with actors, which play every environment here.
WITH_ACTORS = ('sebulba', 'impala')
# It plays environments in JAX, so CartPole only.
ANAKIN = 'anakin'
OURS = (*WITH_ACTORS, ANAKIN)
# Options that every system gets, under the system's own names.
COMMON = (
  'env',
  'seed',
  'num_actors',
  'envs_per_actor',
  'unroll_length',
  'batch_size',
  'discount',
  'learning_rate',
  'max_gradient_norm',
  'entropy_cost',
  'baseline_cost',
  'max_abs_reward',
  'torso',
  'mlp_sizes',
  'hidden_size',
)
# Options of our programs only, which do not affect the common settings.
OWN = (
  'env_groups',
  'actors_as_threads',
  'inference_nodes',
  'inference_batch_size',
  'inference_timeout_ms',
  'num_replay_shards',
  'queue_size',
  'update_period',
)
# The mean return of the last 100 training episodes at which CartPole counts as learned.
CARTPOLE_RETURN = 400.0
# A task of MuJoCo, with continuous actions.
HALF_CHEETAH = 'gymnasium:HalfCheetah-v5'
# That of our network for images if --hidden_size is left out.
_HIDDEN_SIZE = 512


@dataclasses.dataclass(frozen=True)
class Settings:
  """The common settings; drivers get them as JSON.

  Attributes:
    env: 'cartpole', 'atari:Pong' or `HALF_CHEETAH`.
    game: the options of our Atari environment that apply to every system, by name; {} elsewhere.
    torso: 'mlp', 'nature' or 'impala'.
    frame_stack: number of observations stacked for the torso.
    batch_size: unrolls in a batch.
    The others have the names of our programs' options.
  """

  env: str
  game: dict[str, Any]
  seed: int
  num_actors: int
  envs_per_actor: int
  unroll_length: int
  batch_size: int
  discount: float
  learning_rate: float
  max_gradient_norm: float
  entropy_cost: float
  baseline_cost: float
  max_abs_reward: float
  torso: str
  mlp_sizes: tuple[int, ...]
  activation: str
  separate_critic: bool
  normalize_observations: bool
  hidden_size: int
  frame_stack: int

  @property
  def action_repeat(self) -> int:
    """Environment frames per agent decision."""
    return self.game.get('action_repeat', 1)

  @property
  def continuous(self) -> bool:
    """Whether actions are continuous."""
    return self.env == HALF_CHEETAH

  @property
  def threshold(self) -> float | None:
    """The return that counts as learned; None if a run of a minute cannot reach it."""
    return CARTPOLE_RETURN if self.env == 'cartpole' else None


def options_of(program: str, given: Mapping[str, Any]) -> dict[str, Any]:
  """Returns the given options that `program` has."""
  known = options.flatten(programs.load(program).Config())
  return {name: value for name, value in given.items() if name in known}


def own_options(program: str, settings: Settings, given: Mapping[str, Any]) -> dict[str, Any]:
  """Returns the options of a program of ours that give it the common settings.

  Args:
    program: one of `OURS`.
    settings: the common settings.
    given: the options that the user set.
  """
  if program != ANAKIN:
    return options_of(program, given) | {'env': settings.env, 'seed': settings.seed}
  return options_of(program, vars(settings)) | {
    'env': 'gymnax:CartPole-v1',
    'num_envs': settings.num_actors * settings.envs_per_actor,
  }


def make(given: Mapping[str, Any]) -> Settings:
  """Returns the settings for the options that the user set.

  Args:
    given: options of our programs by name, as `programs.options.flags.given` returns them.

  Raises:
    ValueError: an option is not passed on to peers, or the options do not fit together; one sentence.
  """
  for name in given:
    if name not in COMMON + OWN:
      raise ValueError(
        f'--{name} is not passed on to the peers; leave it out, or compare our programs alone with '
        'benchmarks.scaling.'
      )
  env = given.get('env', 'cartpole')
  family = env.partition(':')[0]
  if family not in ('cartpole', 'atari') and env != HALF_CHEETAH:
    raise ValueError(
      f'--env={env} is not one that peers are set up for: use cartpole, atari:Pong or {HALF_CHEETAH}.'
    )
  by_program = {
    name: configs.make_config(programs.load(name), {'env': env, **options_of(name, given)})
    for name in WITH_ACTORS
  }
  config = by_program['sebulba']
  torso = 'nature' if family == 'atari' else 'mlp'
  agent = config.agent
  if agent.torso not in ('auto', torso) and (family, agent.torso) != ('atari', 'impala'):
    raise ValueError(
      f'--torso={agent.torso} is not one that peers have for --env={env}; leave it out.'
    )
  if agent.max_abs_reward == 0.0 and family == 'atari':
    raise ValueError('--max_abs_reward=0 is not passed on to the peers; leave it out for 1.')
  fields = {field.name for field in dataclasses.fields(Settings)}
  values = {name: value for name, value in options.flatten(config).items() if name in fields}
  values['torso'] = torso if agent.torso == 'auto' else agent.torso
  if family == 'atari':
    values['hidden_size'] = agent.hidden_size or _HIDDEN_SIZE
  game = environments.all_options(env) if family == 'atari' else {}
  return Settings(**values, game=game)
