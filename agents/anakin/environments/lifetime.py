"""Lifetimes of many inner episodes (Zheng et al. 2020, "What Can Learned Intrinsic Rewards Capture?").

A task, such as a hidden goal, is drawn at the start of a lifetime and stays until its end. What an agent
finds out in one inner episode is therefore worth something in the next. The four tasks are those of the
paper; the sizes of rooms and the limits of steps are ours.
"""

from __future__ import annotations

import abc
from typing import NamedTuple

import dm_env.specs
import jax
import jax.numpy as jnp
import numpy as np

from agents.anakin.environment import begin_episode, transition
from agents.anakin.environments import errors, worlds
from agents.anakin.environments.worlds import World
from agents.lifetimes import LifetimeObservation
from agents.types import Array, Timestep

# What the key of Key-Box costs.
_KEY_REWARD = -0.1


class LifetimeState(NamedTuple):
  """One lifetime. Scalars are `[]`."""

  task: Array  # Drawn once; int32 or float32, of the task's shape.
  cell: Array  # int32.
  item: Array  # int32, what the agent holds.
  episode_step: Array  # int32, steps of the inner episode so far.
  step: Array  # int32, steps of the lifetime so far.
  episodes: Array  # int32, inner episodes that have ended.


class Task(abc.ABC):
  """What may be found in a world.

  Attributes:
    world: in which it is.
    num_items: what the agent may hold, counting nothing as 0.
  """

  world: World
  num_items: int = 1

  @abc.abstractmethod
  def draw(self, key: Array) -> Array:
    """Returns what is fixed for a lifetime."""

  @abc.abstractmethod
  def enter(
    self, task: Array, cell: Array, item: Array, episodes: Array
  ) -> tuple[Array, Array, Array]:
    """Returns reward, what the agent now holds, and whether the inner episode ends.

    Args:
      task: of this lifetime.
      cell: int32 `[]`, that the agent has just entered.
      item: int32 `[]`, what it held.
      episodes: int32 `[]`, inner episodes of the lifetime that have ended.
    """


class Goal(Task):
  """Empty Rooms: an invisible goal with reward 1 anywhere but at the start."""

  def __init__(self, size: int):
    self.world = worlds.room(size, 0)

  def draw(self, key: Array) -> Array:
    """Returns the goal's cell, int32 `[]`."""
    cells = len(self.world.moves)
    return (self.world.start + jax.random.randint(key, (), 1, cells)) % cells

  def enter(
    self, task: Array, cell: Array, item: Array, episodes: Array
  ) -> tuple[Array, Array, Array]:
    """See the base class."""
    del episodes
    found = cell == task
    return found.astype(jnp.float32), item, found


class Objects(Task):
  """Random ABC: objects with rewards from [-1, 1], [-0.5, 0] and [0, 0.5]; each ends the inner episode.

  With a key, Key-Box: the key costs 0.1, and without it A, B and C do nothing.
  """

  def __init__(self, size: int, with_key: bool = False):
    self._with_key = with_key
    count = 4 if with_key else 3
    self.world = worlds.choice(count) if size == 1 else worlds.room(size, count)
    self.num_items = 2 if with_key else 1

  def draw(self, key: Array) -> Array:
    """Returns the rewards of A, B and C, float32 `[3]`."""
    low, high = jnp.asarray([-1.0, -0.5, 0.0]), jnp.asarray([1.0, 0.0, 0.5])
    return jax.random.uniform(key, (3,), jnp.float32, low, high)

  def enter(
    self, task: Array, cell: Array, item: Array, episodes: Array
  ) -> tuple[Array, Array, Array]:
    """See the base class."""
    here = jnp.asarray(self.world.objects) == cell
    taken = here[:3]
    if not self._with_key:
      return self._rewards(task, episodes) @ taken, item, taken.any()
    taken, key = taken & (item == 1), here[3] & (item == 0)
    reward = self._rewards(task, episodes) @ taken + _KEY_REWARD * key
    return reward, item | key, taken.any()

  def _rewards(self, task: Array, episodes: Array) -> Array:
    del episodes
    return task


class Swapped(Objects):
  """Non-stationary ABC: A is worth 1 or -1, B -0.5, and C the opposite of A; A and C swap regularly."""

  def __init__(self, size: int, swap_episodes: int):
    super().__init__(size)
    self._swap_episodes = swap_episodes

  def draw(self, key: Array) -> Array:
    """Returns the first rewards of A, B and C, float32 `[3]`."""
    a = jax.random.rademacher(key, (), jnp.float32)
    return jnp.stack([a, jnp.float32(-0.5), -a])

  def _rewards(self, task: Array, episodes: Array) -> Array:
    return jnp.where(episodes // self._swap_episodes % 2 == 0, task, task[::-1])


class Lifetime:
  """One task for many inner episodes. Observations are one-hot, of cell and item; see the spec's class.

  A lifetime terminates after a number of inner episodes or of steps. Its return is the return of the
  dm_env episode.
  """

  def __init__(self, task: Task, episodes: int, episode_steps: int, lifetime_steps: int):
    """Initialises lifetimes.

    Args:
      task: of which each lifetime draws one.
      episodes: inner episodes after which a lifetime ends.
      episode_steps: steps after which an inner episode ends.
      lifetime_steps: steps after which a lifetime ends.
    """
    self._task = task
    self._limits = episodes, episode_steps, lifetime_steps
    cells, actions = task.world.moves.shape
    self.observation_spec = LifetimeObservation(cells * task.num_items)
    self.action_spec = dm_env.specs.DiscreteArray(actions, np.int32, 'action')

  def reset(self, key: Array) -> tuple[LifetimeState, Timestep]:
    """Draws a task and begins a lifetime. See `JaxEnvironment`."""
    zero = jnp.int32(0)
    start = jnp.int32(self._task.world.start)
    state = LifetimeState(self._task.draw(key), start, zero, zero, zero, zero)
    return state, begin_episode(self._observe(state, jnp.asarray(False)))

  def step(self, state: LifetimeState, action: Array, key: Array) -> tuple[LifetimeState, Timestep]:
    """Moves; where an inner episode ends, the row shows the start of the next. See `JaxEnvironment`."""
    del key
    episodes, episode_steps, lifetime_steps = self._limits
    cell = jnp.asarray(self._task.world.moves)[state.cell, action]
    reward, item, done = self._task.enter(state.task, cell, state.item, state.episodes)
    episode_step, step = state.episode_step + 1, state.step + 1
    ended = done | (episode_step >= episode_steps)
    start = jnp.int32(self._task.world.start)
    later = LifetimeState(
      task=state.task,
      cell=jnp.where(ended, start, cell),
      item=jnp.where(ended, 0, item),
      episode_step=jnp.where(ended, 0, episode_step),
      step=step,
      episodes=state.episodes + ended,
    )
    over = (later.episodes >= episodes) | (step >= lifetime_steps)
    return later, transition(self._observe(later, ended), reward, over)

  def _observe(self, state: LifetimeState, ended: Array) -> Array:
    cells = len(self._task.world.moves)
    seen = jax.nn.one_hot(state.item * cells + state.cell, cells * self._task.num_items)
    return jnp.append(seen, ended).astype(jnp.float32)


# Inner episodes, steps of each, and steps of a lifetime, by task.
_LIMITS = {
  'empty_rooms': (200, 20, 400),
  'random_abc': (50, 20, 1_000),
  'key_box': (100, 20, 2_000),
  'nonstationary_abc': (1_000, 20, 20_000),
}


def make(
  task: str,
  *,
  size: int = 0,
  episodes: int = 0,
  episode_steps: int = 0,
  lifetime_steps: int = 0,
  swap_episodes: int = 250,
) -> Lifetime:
  """Makes one of the tasks.

  Args:
    task: empty_rooms, random_abc, key_box or nonstationary_abc.
    size: cells along a wall of the room; 1: actions choose an object without a way to it; 0: 9 for
      empty_rooms, else 1.
    episodes: inner episodes after which a lifetime ends; 0: the task's own number.
    episode_steps: steps after which an inner episode ends; 0: 20.
    lifetime_steps: steps after which a lifetime ends; 0: 400 for empty_rooms, else as many as the inner
      episodes may take.
    swap_episodes: inner episodes of nonstationary_abc after which A and C swap their rewards.

  Raises:
    ValueError: the task is unknown or an option is out of range.
  """
  if task not in _LIMITS:
    raise errors.unknown_task('lifetime', task, _LIMITS)
  given = episodes, episode_steps, lifetime_steps
  for name, value in zip(('episodes', 'episode_steps', 'lifetime_steps'), given, strict=True):
    if value < 0:
      raise ValueError(
        f"--env_options={name}={value} must be 0, for the task's own limit, or more."
      )
  if swap_episodes < 1:
    raise ValueError(f'--env_options=swap_episodes={swap_episodes} must be at least 1.')
  smallest = 2 if task == 'empty_rooms' else 1
  size = size or (9 if task == 'empty_rooms' else 1)
  if not smallest <= size <= 1000 or (size == 2 and task != 'empty_rooms'):
    sizes = '2 to 1000' if smallest == 2 else '1, or 3 to 1000'
    raise ValueError(f'--env_options=size={size} does not suit lifetime:{task}; set {sizes}.')
  tasks = {
    'empty_rooms': lambda: Goal(size),
    'random_abc': lambda: Objects(size),
    'key_box': lambda: Objects(size, with_key=True),
    'nonstationary_abc': lambda: Swapped(size, swap_episodes),
  }
  own_episodes, own_steps, own_lifetime = _LIMITS[task]
  episodes, episode_steps = episodes or own_episodes, episode_steps or own_steps
  if task != 'empty_rooms':
    own_lifetime = min(episodes * episode_steps, 2**31 - 1)  # JAX counts steps in an int32.
  return Lifetime(tasks[task](), episodes, episode_steps, lifetime_steps or own_lifetime)
