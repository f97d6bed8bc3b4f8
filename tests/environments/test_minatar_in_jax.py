"""MinAtar in JAX is the same game as on the CPU, transition by transition and on average."""

import copy
import dataclasses
import functools

import jax
import numpy as np
import pytest

from agents.anakin.environments import minatar as in_jax
from agents.seeding import Seed
from environments import jax_registry, minatar, registry
from tests.environments.minatar_play import NOOP, TASKS, episodes, mixed
from viewing.jax_batch import JaxBatch

LAST = 2
NUM_TRANSITIONS = 600

# gymnax's fields that are not fields of the package's games: the numbers of objects.
COUNTS = {
  'f_bullet_count': 'f_bullets',
  'e_bullet_count': 'e_bullets',
  'e_fish_count': 'e_fish',
  'e_subs_count': 'e_subs',
  'divers_count': 'divers',
}


def in_gymnax(game, example):
  """Returns the state of a package's game as a dict of gymnax's fields.

  Args:
    game: the package's.
    example: gymnax's state of such a game, for names, shapes and dtypes.
  """
  fields = {}
  for field in dataclasses.fields(example):
    leaf = np.asarray(getattr(example, field.name))
    if field.name in COUNTS:
      value = len(getattr(game, COUNTS[field.name]))
    elif field.name == 'time':  # Only Freeway counts its steps.
      value = 2500 - game.terminate_timer if hasattr(game, 'terminate_timer') else 0
    elif field.name == 'terminal':
      value = False
    elif field.name == 'entities':
      value = [[0] * 5 if row is None else [*row, True] for row in game.entities]
    else:
      value = getattr(game, field.name)
    value = np.array(value, leaf.dtype)
    if field.name in COUNTS.values():
      padding = leaf.shape[0] - len(value)
      value = np.pad(value.reshape(-1, leaf.shape[1]), ((0, padding), (0, 0)))
    fields[field.name] = value.reshape(leaf.shape)
  return fields


def begin(game, rng):
  """Starts an episode of a package's game at a random point of its difficulty."""
  game.reset()
  if hasattr(game, 'entities'):
    game.ramp_index, game.ramp_timer = rng.integers(10), rng.integers(-1, 101)
    game.spawn_speed, game.move_speed = 10 - game.ramp_index, 5 - game.ramp_index // 2
  if hasattr(game, 'e_subs'):
    game.ramp_index = rng.integers(20)
    game.e_spawn_speed = 20 - game.ramp_index
    game.move_speed = max(5 - game.ramp_index // 2, 2)
    game.oxygen, game.diver_count = rng.integers(1, 201), rng.integers(-1, 7)
    game.sub_y, game.surface = rng.integers(1, 9), False
  if hasattr(game, 'alien_map'):
    game.alien_map *= rng.random((10, 10)) < rng.choice([0.1, 0.5, 1.0])
    game.alien_map[rng.integers(9), rng.integers(2, 8)] = 1
    game.enemy_move_interval = rng.integers(6, 13)


def let_objects_in(game):
  """Does at once what a package's game would do first in its next step, which then draws nothing."""
  if hasattr(game, 'entities') and game.spawn_timer == 0:
    game._spawn_entity()
    game.spawn_timer = game.spawn_speed
  if hasattr(game, 'e_subs') and game.e_spawn_timer == 0:
    game._spawn_enemy()
    game.e_spawn_timer = game.e_spawn_speed
  if hasattr(game, 'divers') and game.d_spawn_timer == 0:
    game._spawn_diver()
    game.d_spawn_timer = 30


class SameCars:
  """Random draws that give Freeway's cars known speeds."""

  def __init__(self, speeds):
    self._speeds = speeds

  def randint(self, *_):
    return np.abs(self._speeds)

  def rand(self, *_):
    return np.where(self._speeds > 0, 0.9, 0.1)


@functools.cache
def compiled(task):
  """Returns a game without sticky actions and its compiled step over a batch."""
  environment = in_jax.make(task, sticky_actions=0.0)
  return environment, jax.jit(jax.vmap(environment.step))


@pytest.mark.slow
@pytest.mark.parametrize('task', TASKS)
def test_every_transition_is_the_packages(task):
  environment, step = compiled(task)
  example = jax.device_get(environment.reset(jax.random.key(0))[0].game)
  rng = np.random.default_rng(0)
  game = minatar.load(task).Env(ramping=True)
  game.random = np.random.RandomState(0)
  begin(game, rng)
  games, actions = [], []
  for _ in range(NUM_TRANSITIONS):
    let_objects_in(game)
    games.append(copy.deepcopy(game))
    actions.append(mixed(task, game.state()[None], rng, 0.3)[0])
    if game.act(actions[-1])[1] or rng.random() < 0.01:
      begin(game, rng)
  before = [in_gymnax(game, example) for game in games]
  states = in_jax.MinAtarState(
    type(example)(**{name: np.stack([b[name] for b in before]) for name in before[0]}),
    np.full(NUM_TRANSITIONS, NOOP, np.int32),
  )
  keys = jax.random.split(jax.random.key(1), NUM_TRANSITIONS)
  after, rows = jax.device_get(step(states, np.array(actions), keys))

  ends = rewards = 0
  for i, game in enumerate(games):
    if task == 'Freeway':
      game.random = SameCars(after.game.cars[i, :, 3])
    reward, ended = game.act(actions[i])
    assert rows.reward[i] == reward
    assert (rows.step_type[i] == LAST, rows.discount[i]) == (ended, not ended)
    ends, rewards = ends + ended, rewards + reward
    if ended:  # gymnax's Seaquest still surfaces where the package's has ended the game.
      continue
    np.testing.assert_array_equal(rows.observation[i], game.state())
    ignored = {'time', 'terminal', 'ramping'}
    if getattr(game, 'spawn_speed', 0) == getattr(game, 'move_speed', 0) == 1:
      ignored.add('ramp_timer')  # Asterix is as fast as it can be.
    for name, expected in in_gymnax(game, example).items():
      found = getattr(after.game, name)[i]
      if name == 'e_bullets':  # In another order, which has no effect.
        expected, found = np.array(sorted(expected.tolist())), np.array(sorted(found.tolist()))
      if name not in ignored:
        np.testing.assert_array_equal(found, expected, name)
  assert rewards > 0
  assert task == 'Freeway' or ends > 0


@pytest.mark.slow
def test_what_enters_in_asterix_is_drawn_as_in_the_package():
  """In any free row with the same probability; from the left in 1/2, gold in 1/3 of all cases."""
  environment, step = compiled('Asterix')
  state, _ = environment.reset(jax.random.key(0))
  keys = jax.random.split(jax.random.key(1), NUM_TRANSITIONS)
  for free in ([2, 5, 7], [0], [7], []):
    entities = np.tile(np.array([4, 0, 1, 1, 1], np.int32), (8, 1))
    entities[:, 1] = np.arange(1, 9)
    entities[free] = 0
    game = state.game.replace(entities=entities, spawn_timer=0, player_x=0)
    full = jax.tree.map(
      lambda x: np.broadcast_to(x, (NUM_TRANSITIONS, *np.shape(x))), state._replace(game=game)
    )
    after = jax.device_get(step(full, np.zeros(NUM_TRANSITIONS, np.int32), keys)[0].game)
    np.testing.assert_array_equal(after.spawn_timer, 9)
    entered = (after.entities != entities).any(2)
    np.testing.assert_array_equal(entered.sum(1), min(len(free), 1))
    if not free:
      continue
    new = after.entities[entered]
    assert set(new[:, 1] - 1) == set(free)
    np.testing.assert_array_equal(new[:, 0], np.where(new[:, 2] == 1, 0, 9))
    shares = [(new[:, 1] - 1 == row).mean() - 1 / len(free) for row in free]
    shares += [new[:, 2].mean() - 1 / 2, new[:, 3].mean() - 1 / 3]
    assert np.abs(shares).max() < 4 * 0.5 / np.sqrt(NUM_TRANSITIONS)


def test_options_are_those_of_the_cpu():
  name = 'minatar:SpaceInvaders'
  assert jax_registry.all_options(name) == registry.all_options(name)
  for options in ('', 'full_action_space=false'):
    ours, theirs = jax_registry.make(name, options), registry.make_spec(name, options)
    assert ours.action_spec == theirs.actions
    assert ours.observation_spec == theirs.observations


def test_no_ramping_reaches_space_invaders():
  state, _ = in_jax.make('SpaceInvaders', difficulty_ramping=False).reset(jax.random.key(0))
  assert not state.game.ramping
  assert in_jax.make('SpaceInvaders').reset(jax.random.key(0))[0].game.ramping


@pytest.mark.nightly
@pytest.mark.parametrize('policy', ['uniform', 'scripted'])
@pytest.mark.parametrize('task', TASKS)
def test_returns_and_lengths_have_the_same_means(task, policy):
  """Sticky actions, time limits, draws and resets included: z-tests of Welch at 4 standard errors."""
  num_envs, each = (128, 1) if task == 'Freeway' else (128, 12)
  found = []
  for batch in (
    registry.make(f'minatar:{task}', num_envs, 1),
    JaxBatch(in_jax.make(task), num_envs, Seed(1)),
  ):
    rng = np.random.default_rng(2)
    random = 1.0 if policy == 'uniform' else 0.1
    found.append(episodes(batch, lambda seen: mixed(task, seen, rng, random), each))  # noqa: B023
  for cpu, jaxs in zip(*found, strict=True):
    error = np.sqrt(cpu.var() / cpu.size + jaxs.var() / jaxs.size)
    assert abs(cpu.mean() - jaxs.mean()) <= 4 * error, (cpu.mean(), jaxs.mean(), error)
