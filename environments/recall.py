"""Recall: a cue at the start of an episode, distractors, then a question about the cue.

The first row shows one of `num_cues` symbols as the cue. The question follows `delay` to
`delay + jitter` rows later, and an action names the symbol. The rows between show symbols that mean
nothing, or none. A right answer is worth 1, a wrong one `-1 / (num_cues - 1)`, so a guess is worth 0.

An unroll of recurrent replay never holds a cue and its question where `burn_in + unroll_length <= delay`.
The answer is then learned from the *stored* recurrent state of an unroll: from a zero state it is a guess
(Kapturowski et al. 2019, section 3). The default delay exceeds the 28 rows of R2D2's preset for small
environments. The jitter keeps questions from always falling on the same row of an unroll.

No row after the cue depends on it. Only the agent can carry it: in its state, or in its own actions.
"""

from __future__ import annotations

import dm_env
import numpy as np
from acme import specs

from environments import errors
from environments.base import BatchedEnvironment


class Recall(BatchedEnvironment):
  """`N` episodes, each of `delay + 1` to `delay + jitter + 1` steps.

  Observations are float32 `[num_cues + 2]`: the shown symbol as one-hot, or zeros; 1 at the cue; 1 at the
  question. Actions are the symbols. Only the answer to the question has an effect.
  """

  def __init__(
    self,
    num_envs: int,
    seed: int,
    num_cues: int = 2,
    delay: int = 32,
    jitter: int = 7,
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
    self._cue, self._question = self._draw()
    return self._timestep(np.zeros(self.num_envs, np.float32))

  def step(self, action: np.ndarray) -> dm_env.TimeStep:
    """Goes on by one row, with the answers of the environments that were asked.

    Args:
      action: int32 `[N]`, each below `num_cues`.
    """
    ended = self._age > self._question
    asked = self._age == self._question
    cue, question = self._draw()
    right = np.where(action == self._cue, 1.0, -1.0 / (self._num_cues - 1))
    reward = np.where(asked, right, 0.0).astype(np.float32)
    self._cue = np.where(ended, cue, self._cue)
    self._question = np.where(ended, question, self._question)
    self._age = np.where(ended, 0, self._age + 1)
    return self._timestep(reward)

  def observation_spec(self) -> specs.Array:
    """Returns float32 `[num_cues + 2]` in [0, 1]."""
    return specs.BoundedArray((self._num_cues + 2,), np.float32, 0.0, 1.0, 'observation')

  def action_spec(self) -> specs.DiscreteArray:
    """Returns one action per symbol."""
    return specs.DiscreteArray(self._num_cues, np.int32, 'action')

  def _draw(self) -> tuple[np.ndarray, np.ndarray]:
    """Returns N cues and the rows of their questions."""
    cue = self._rng.integers(self._num_cues, size=self.num_envs)
    return cue, self._delay + self._rng.integers(self._jitter + 1, size=self.num_envs)

  def _timestep(self, reward: np.ndarray) -> dm_env.TimeStep:
    first, last = self._age == 0, self._age > self._question
    waiting = ~first & (self._age < self._question)
    symbol = self._rng.integers(self._num_cues, size=self.num_envs)
    distracts = waiting & (self._rng.random(self.num_envs) < self._distractors)
    observation = np.zeros((self.num_envs, self._num_cues + 2), np.float32)
    observation[self._index, np.where(first, self._cue, symbol)] = first | distracts
    observation[:, -2] = first
    observation[:, -1] = self._age == self._question
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
  delay: int = 32,
  jitter: int = 7,
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
  errors.require_option(num_cues >= 2, 'num_cues', num_cues, 'be at least 2')
  errors.require_option(delay >= 1, 'delay', delay, 'be at least 1')
  errors.require_option(jitter >= 0, 'jitter', jitter, 'be at least 0')
  errors.require_option(0 <= distractors <= 1, 'distractors', distractors, 'be in [0, 1]')
  return Recall(num_envs, seed, num_cues, delay, jitter, distractors)
