"""Options of every run and its evaluator. Imports no JAX, since the launcher builds graphs with them."""

from __future__ import annotations

import dataclasses
import math
import os

from agents.options import CheckedOptions, option
from rundir import learners


@dataclasses.dataclass(frozen=True)
class RunOptions(CheckedOptions):
  """What is learned, for how long, and what is kept. 0 means 'choose for me' where the text says so."""

  env: str = option(
    'catch', 'environment, family or family:task; see --list_envs; or path/to/mine.py:make'
  )
  agent: str = option(
    '',
    'learning algorithm, where the program has several: vtrace and ppo (sebulba, impala, anakin, '
    'population, population_sebulba), pqn (sebulba, impala, anakin), muzero (anakin), r2d2 (anakin, '
    'population), bc, avril and qt_opt (offline); or path/to/mine.py:MyAgent',
  )
  num_steps: int = option(
    300_000,
    'actor_steps (agent decisions), of all replicas, after which training ends',
    at_least=1,
  )
  seed: int = option(
    1,
    'seed of parameters, action sampling and environments',
    at_least=0,
    at_most=2**32 - 1,  # JAX uses only 32 bits.
  )
  run_dir: str = option('', 'directory of this run; empty: runs/<program>-<env>-<time>')
  preset: str = option(
    'default',
    'options that suit the environment: default; published, where a paper has its own; none, for the '
    'defaults alone; --presets lists them',
  )
  env_options: str = option('', "the environment's own options, as key=value,key=value")
  init_from: str = option(
    '', 'directory of a run whose parameters this run begins with; empty: new parameters'
  )
  accelerator: str = option('cpu', "accelerator of the learner's host: cpu, gpu or tpu")
  checkpoint_period: float = option(
    60.0,
    'seconds between learner checkpoints; 0: none, and the failure of a learner ends the program unless '
    'it has peers',
    at_least=0,
  )
  checkpoints_kept: int = option(3, 'number of learner checkpoints to keep', at_least=1)
  cpu_cores: int = option(
    0,
    "CPU cores that a preset's rules count on; 0: those that this process may use",
    at_least=0,
  )
  # Number of times the run has been resumed. Not a flag; it is read from the run directory.
  resumes: int = dataclasses.field(default=0, metadata={'flag': False})

  def learner_dir(self, learner: int = 0) -> str:
    """Returns the directory of a learner's checkpoints and final parameters; see `rundir.learners`."""
    return learners.directory(self.run_dir, learner)

  def resolve(self) -> RunOptions:
    """Returns the options with every 'choose for me' replaced by the choice."""
    return dataclasses.replace(self, cpu_cores=self.cpu_cores or len(os.sched_getaffinity(0)))

  def _check(self) -> None:
    if self.accelerator not in ('cpu', 'gpu', 'tpu'):
      raise ValueError(f'--accelerator={self.accelerator} must be cpu, gpu or tpu.')


@dataclasses.dataclass(frozen=True)
class EvaluationOptions(CheckedOptions):
  """The evaluator, which plays whole episodes without exploration, and its videos."""

  eval_envs: int = option(10, "the evaluator's environments; 0: no evaluator", at_least=0)
  eval_episodes: int = option(100, 'episodes in one evaluation', at_least=0)
  eval_period: int = option(
    0, 'actor_steps between evaluations; 0: a twentieth of num_steps', at_least=0
  )
  eval_share: float = option(
    0.05,
    'largest share of the time that evaluations take during training; the first 2 seconds of each do '
    'not count; each plays at least one episode in every environment; 1: no limit',
    above=0,
    at_most=1,
  )
  eval_seconds: float = option(
    60.0,
    'seconds after which the final evaluation starts no further round of episodes; 0: no limit',
    at_least=0,
  )
  eval_episode_steps: int = option(
    100_000,
    "steps after which an evaluator's episode counts with its return so far; 0: no limit",
    at_least=0,
  )
  video_period: float = option(
    0.0,
    'seconds between videos of the policy during training, which the evaluator records into videos/; '
    'recording takes at most --eval_share of the time; 0: none',
    at_least=0,
  )
  video_frames: int = option(500, 'maximum number of frames in a video', at_least=1)
  videos_kept: int = option(5, 'number of videos to keep, the newest', at_least=1)

  @property
  def episodes_each(self) -> int:
    """Episodes of one evaluation in each environment."""
    return math.ceil(self.eval_episodes / self.eval_envs)

  def resolve(self, num_steps: int) -> EvaluationOptions:
    """Returns the options with every 'choose for me' replaced by the choice, for a run's length."""
    return dataclasses.replace(self, eval_period=self.eval_period or max(1, num_steps // 20))

  def _check(self) -> None:
    if self.eval_envs and not self.eval_episodes:
      raise ValueError('--eval_episodes=0 leaves the evaluator nothing to do; use --eval_envs=0.')
    if self.video_period and not self.eval_envs:
      raise ValueError(
        f'--video_period={self.video_period:g} needs the evaluator, which --eval_envs=0 leaves out; '
        'leave one of them out.'
      )
    if not self.video_period:
      self._require_default('--video_period', 'video_frames', 'videos_kept')
