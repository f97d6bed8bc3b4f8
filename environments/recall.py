"""Recall: a cue at the start of an episode, distractors, then a question about the cue.

The first row shows one of `num_cues` symbols as the cue. The question follows `delay` to
`delay + jitter` rows later. The rows between show symbols that mean nothing, or none. A right answer is
worth 1. A wrong one is worth `-1 / (num_cues - 1)`, so a guess is worth 0. An answer before the question
ends the episode as a wrong one.

With `burn_in + unroll_length <= delay`, an unroll of recurrent replay never holds a cue and its
question. The answer is then learned from the *stored* recurrent state of an unroll. From a zero state it
is a guess (Kapturowski et al. 2019, section 3). No row after the cue depends on it, and because early
answers are wrong, an agent cannot keep the cue in its own actions. The jitter keeps questions from
always falling on the same row of an unroll.
"""

from __future__ import annotations

import dm_env
import numpy as np
from acme import specs

from environments import errors
from environments.base import BatchedEnvironment

_WAIT = 0


class Recall(BatchedEnvironment):
  """`N` episodes of at most `delay + jitter + 1` steps.

  Observations are float32 `[num_cues + 2]`: the shown symbol as one-hot, or zeros; 1 at the cue; 1 at
  the question. Action 0 waits, action `i` answers that the cue was symbol `i - 1`.
  """

  def __init__(
    self,
    num_envs: int,
    seed: int,
    num_cues: int = 2,
    delay: int = 10,
    jitter: int = 3,
    distractors: float = 0.2,
  ):
    self.num_envs = num_envs
    self._rng = np.random.default_rng(seed)
    self._num_cues = num_cues
    self._delay = delay
    self._jitter = jitter
    self._distractors = distractors
    self._index = np.arange(num_envs)

  def reset(self) -> dm_env.TimeStep:
    """Shows N cues. See the base class."""
    self._age = np.zeros(self.num_envs, int)
    self._over = np.zeros(self.num_envs, bool)
    self._cue, self._question = self._draw()
    return self._timestep(np.zeros(self.num_envs, np.float32))

  def step(self, action: np.ndarray) -> dm_env.TimeStep:
    """Goes on by one row. See the base class.

    Args:
      action: int32 `[N]`, each at most `num_cues`.
    """
    starts = self._over
    answers = ~starts & ((action != _WAIT) | (self._age == self._question))
    right = answers & (self._age == self._question) & (action - 1 == self._cue)
    reward = np.where(right, 1.0, np.where(answers, -1.0 / (self._num_cues - 1), 0.0))
    cue, question = self._draw()
    self._cue = np.where(starts, cue, self._cue)
    self._question = np.where(starts, question, self._question)
    self._age = np.where(starts, 0, self._age + 1)
    self._over = answers
    return self._timestep(reward.astype(np.float32))

  def observation_spec(self) -> specs.Array:
    """Returns float32 `[num_cues + 2]` in [0, 1]."""
    return specs.BoundedArray((self._num_cues + 2,), np.float32, 0.0, 1.0, 'observation')

  def action_spec(self) -> specs.DiscreteArray:
    """Returns one action to wait and one per symbol."""
    return specs.DiscreteArray(self._num_cues + 1, np.int32, 'action')

  def _draw(self) -> tuple[np.ndarray, np.ndarray]:
    """Returns N cues and the rows of their questions."""
    cue = self._rng.integers(self._num_cues, size=self.num_envs)
    return cue, self._delay + self._rng.integers(self._jitter + 1, size=self.num_envs)

  def _timestep(self, reward: np.ndarray) -> dm_env.TimeStep:
    first, last = self._age == 0, self._over
    asked = ~last & (self._age == self._question)
    symbol = self._rng.integers(self._num_cues, size=self.num_envs)
    distracted = self._rng.random(self.num_envs) < self._distractors
    observation = np.zeros((self.num_envs, self._num_cues + 2), np.float32)
    observation[self._index, np.where(first, self._cue, symbol)] = first | (
      distracted & ~asked & ~last
    )
    observation[:, -2] = first
    observation[:, -1] = asked
    step_type = np.where(first, dm_env.StepType.FIRST, dm_env.StepType.MID)
    return dm_env.TimeStep(
      step_type=np.where(last, dm_env.StepType.LAST, step_type).astype(np.uint8),
      reward=reward,
      discount=np.float32(1) - last,
      observation=observation,
    )


def make(
  task: str,
  num_envs: int,
  seed: int,
  *,
  num_cues: int = 2,
  delay: int = 10,
  jitter: int = 3,
  distractors: float = 0.2,
) -> Recall:
  """Makes N copies that differ in their cues, questions and distractors.

  Args:
    task: empty.
    num_envs: N.
    seed: the seed of the batch.
    num_cues: number of symbols.
    delay: the fewest rows from the cue to the question.
    jitter: the most rows by which the question is later than that.
    distractors: probability that a row between shows a random symbol.

  Raises:
    ValueError: the task is not empty, or an option is out of range.
  """
  errors.reject_task('recall', task)
  errors.require_option(2 <= num_cues <= 1000, 'num_cues', num_cues, 'be from 2 to 1000')
  errors.require_option(delay >= 1, 'delay', delay, 'be at least 1')
  errors.require_option(jitter >= 0, 'jitter', jitter, 'be at least 0')
  errors.require_option(0 <= distractors <= 1, 'distractors', distractors, 'be in [0, 1]')
  return Recall(num_envs, seed, num_cues, delay, jitter, distractors)
