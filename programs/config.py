"""What programs can be told: all of them, and those with actors, inference and replay."""

from __future__ import annotations

import dataclasses
from typing import TypeVar

from agents.options import option

C = TypeVar('C', bound='CommonConfig')
R = TypeVar('R', bound='RunConfig')

BATCH_SIZE_HELP = (
  'unrolls that each replica adds to a learner batch, over its learner devices; an update is over '
  'num_replicas times as many'
)


@dataclasses.dataclass(frozen=True)
class CommonConfig:
  """Options of every program. One flag each; 0 means 'choose for me' where it says so."""

  env: str = option('catch', 'environment, family or family:task; --list_envs lists them')
  env_options: str = option('', "the environment's own options, as key=value,key=value")
  num_steps: int = option(
    300_000, 'actor_steps (agent decisions), of all replicas, after which training ends'
  )
  seed: int = option(1, 'of parameters, action sampling and environments')
  run_dir: str = option('', 'directory of this run; empty: runs/<program>-<env>-<time>')

  accelerator: str = option('cpu', "what the learner's host has: cpu, gpu or tpu")

  checkpoint_period: float = option(
    60.0,
    'seconds between checkpoints of the learner; 0: none, and a failure of it ends the program',
  )
  checkpoints_kept: int = option(3, 'how many of them to keep')

  eval_envs: int = option(10, "the evaluator's environments; 0: no evaluator")
  eval_episodes: int = option(100, 'episodes in one evaluation')
  eval_period: int = option(0, 'actor_steps between evaluations; 0: a twentieth of num_steps')

  def resolve(self: C) -> C:
    """Returns the config with every 'choose for me' replaced by the choice."""
    return dataclasses.replace(self, eval_period=self.eval_period or max(1, self.num_steps // 20))

  def validate(self) -> None:
    """Checks that the options fit together; call it after `resolve`.

    Raises:
      ValueError: one sentence that names the flag and the fix.
    """
    self._require_at_least_one('num_steps', 'checkpoints_kept')
    for name in ('eval_envs', 'eval_episodes', 'checkpoint_period'):
      if getattr(self, name) < 0:
        raise ValueError(f'--{name}={getattr(self, name)} must not be negative.')
    if self.eval_envs and not self.eval_episodes:
      raise ValueError('--eval_episodes=0 leaves the evaluator nothing to do; use --eval_envs=0.')
    if self.accelerator not in ('cpu', 'gpu', 'tpu'):
      raise ValueError(f'--accelerator={self.accelerator} is none of cpu, gpu, tpu.')

  def _require_at_least_one(self, *names: str) -> None:
    for name in names:
      if getattr(self, name) < 1:
        raise ValueError(f'--{name}={getattr(self, name)} must be at least 1.')


@dataclasses.dataclass(frozen=True)
class RunConfig(CommonConfig):
  """Options of programs with actors, inference and replay, which do not depend on the agent."""

  num_replicas: int = option(
    1,
    'host units: an inference-learner, its replay and its actors, on a host of its own; the learners '
    'average their gradients, and what follows is for each replica',
  )
  num_actors: int = option(2, 'actor processes of each replica')
  envs_per_actor: int = option(32, 'environments in each actor process')
  env_groups: int = option(2, "parts of an actor's environments that are stepped in turn")

  inference_batch_size: int = option(
    0, 'environments in an inference batch at most; 0: half of all'
  )
  inference_timeout_ms: float = option(2.0, 'how long a request waits for a fuller batch')
  actor_devices: tuple[int, ...] = option((0,), 'local devices that act')
  learner_devices: tuple[int, ...] = option((0,), 'local devices that learn')

  batch_size: int = option(16, BATCH_SIZE_HELP)

  num_replay_shards: int = option(
    1, 'replay servers of each replica, filled in turn and sampled evenly'
  )

  audit: bool = option(False, 'record every unroll that is produced and trained on, for drills')

  def resolve(self: R) -> R:
    """Returns the config with every 'choose for me' replaced by the choice."""
    half = self.num_actors * self.envs_per_actor // 2
    group = self.envs_per_actor // max(self.env_groups, 1)
    size = self.inference_batch_size or max(half, group)
    return dataclasses.replace(super().resolve(), inference_batch_size=size)

  def validate(self) -> None:
    """Checks that the options fit together; call it after `resolve`.

    Raises:
      ValueError: one sentence that names the flag and the fix.
    """
    super().validate()
    self._require_at_least_one(
      'num_replicas',
      'num_actors',
      'envs_per_actor',
      'env_groups',
      'batch_size',
      'num_replay_shards',
    )
    if self.inference_timeout_ms < 0:
      raise ValueError(f'--inference_timeout_ms={self.inference_timeout_ms} must not be negative.')
    if self.envs_per_actor % self.env_groups:
      raise ValueError(
        f'--envs_per_actor={self.envs_per_actor} does not divide into '
        f'--env_groups={self.env_groups} equal groups; change one of them.'
      )
    for name in ('actor_devices', 'learner_devices'):
      devices = getattr(self, name)
      if not devices or len(set(devices)) != len(devices) or min(devices) < 0:
        raise ValueError(f'--{name} must list distinct device numbers, such as 0,1.')
    if self.batch_size % len(self.learner_devices):
      raise ValueError(
        f'--batch_size={self.batch_size} does not divide over the {len(self.learner_devices)} '
        'devices of --learner_devices; make it a multiple of their number.'
      )
    if self.batch_size % self.num_replay_shards:
      raise ValueError(
        f'--batch_size={self.batch_size} does not divide over --num_replay_shards='
        f'{self.num_replay_shards}; make it a multiple.'
      )
    group = self.envs_per_actor // self.env_groups
    if self.inference_batch_size < group:
      raise ValueError(
        f'--inference_batch_size={self.inference_batch_size} is smaller than one request of an '
        f'actor, {group} environments; make it at least that.'
      )
    num_streams = self.num_actors * self.env_groups
    if len(self.actor_devices) > num_streams:
      raise ValueError(
        f'--actor_devices lists {len(self.actor_devices)} devices, but only {num_streams} groups of '
        'environments ask for actions (--num_actors times --env_groups); use fewer devices.'
      )
