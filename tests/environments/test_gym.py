import gymnasium
import numpy as np
import pytest
from acme import specs
from gymnasium import spaces
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from environments import registry, seeding
from environments.gym import GymnasiumBatch
from tests.agents.subprocesses import run_python
from tests.environments.test_contract import random_actions

FIRST, MID, LAST = 0, 1, 2


@pytest.mark.parametrize(
  ('task', 'limit'), [('LunarLander-v3', 90), ('Hopper-v5', 20), ('BipedalWalker-v3', 60)]
)
def test_rows_equal_those_of_single_environments(task, limit):
  """LAST shows the true final observation, FIRST the true first one of the next episode."""
  num_envs, seed = 3, 5
  batch = registry.make(f'gymnasium:{task}', num_envs, seed, f'max_episode_steps={limit}')
  singles = [gymnasium.make(task, max_episode_steps=limit) for _ in range(num_envs)]
  expected = [
    single.reset(seed=env_seed)[0]
    for single, env_seed in zip(singles, seeding.spawn(seed, num_envs), strict=True)
  ]
  np.testing.assert_array_equal(batch.reset().observation, np.float32(expected))
  done = [False] * num_envs
  actions = random_actions(batch.action_spec(), 200, num_envs)
  ends = set()
  for action in actions:
    row = batch.step(action)
    for i, single in enumerate(singles):
      if done[i]:
        observation, done[i] = single.reset()[0], False
        assert (row.step_type[i], row.reward[i], row.discount[i]) == (FIRST, 0, 1)
      else:
        observation, reward, terminated, truncated, _ = single.step(action[i])
        done[i] = terminated or truncated
        assert row.step_type[i] == (LAST if done[i] else MID)
        assert row.reward[i] == np.float32(reward)
        assert row.discount[i] == (0 if terminated else 1)
        if done[i]:
          ends.add('terminated' if terminated else 'truncated')
      np.testing.assert_array_equal(row.observation[i], np.float32(observation))
  assert ends == {'terminated', 'truncated'}


def test_tasks_have_their_own_time_limits():
  """HalfCheetah has no other end than its limit of 1,000 steps."""
  batch = registry.make('gymnasium:HalfCheetah-v5', 1, 0)
  assert batch.action_spec() == specs.BoundedArray((6,), np.float32, -1, 1, 'action')
  batch.reset()
  for _ in range(1000):
    row = batch.step(np.zeros((1, 6), np.float32))
    assert row.discount[0] == 1
    last = row.last()[0]
  assert last


def test_mujocos_warnings_about_a_model_are_not_shown(tmp_path, monkeypatch, capfd):
  monkeypatch.chdir(tmp_path)
  registry.trial('gymnasium:HalfCheetah-v5')
  assert not list(tmp_path.iterdir())
  assert capfd.readouterr() == ('', '')


def test_cartpole_by_its_id_is_vectorised(monkeypatch):
  batches = []
  step = CartPoleVectorEnv.step

  def spy(self, action):
    batches.append(len(action))
    return step(self, action)

  monkeypatch.setattr(CartPoleVectorEnv, 'step', spy)
  by_id, by_family = (
    registry.make(name, 4, 7, 'max_episode_steps=9')
    for name in ('gymnasium:CartPole-v1', 'cartpole')
  )
  rows = by_id.reset(), by_family.reset()
  for action in random_actions(by_id.action_spec(), 30, 4):
    for found, expected in zip(*rows, strict=True):
      np.testing.assert_array_equal(found, expected)
    rows = by_id.step(action), by_family.step(action)
  assert batches == [4] * (2 * 30)


def test_cartpole_ends_its_episodes_for_the_right_reason():
  limit, num_envs = 15, 8
  batch = registry.make('cartpole', num_envs, 0, f'max_episode_steps={limit}')
  batch.reset()
  age = np.zeros(num_envs, int)
  rng = np.random.default_rng(0)
  discounts = set()
  for _ in range(200):
    row = batch.step(rng.integers(2, size=num_envs).astype(np.int32))
    first = row.step_type == FIRST
    age = np.where(first, 0, age + 1)
    assert (np.abs(row.observation[first]) <= 0.05).all()
    np.testing.assert_array_equal(row.reward, np.where(first, 0, 1))
    x, theta = row.observation[:, 0], row.observation[:, 2]
    fallen = (np.abs(x) > 2.4) | (np.abs(theta) > 12 * 2 * np.pi / 360)
    np.testing.assert_array_equal(row.step_type == LAST, fallen | (age == limit))
    np.testing.assert_array_equal(row.discount == 0, fallen)
    discounts |= set(row.discount[row.step_type == LAST])
  assert discounts == {0, 1}


def test_cartpole_is_cut_after_500_steps():
  """A hand-written controller balances the pole until the limit."""
  batch = registry.make('cartpole', 2, 0)
  row = batch.reset()
  for _ in range(499):
    _, velocity, angle, spin = row.observation.T
    row = batch.step((angle + 0.3 * spin + 0.05 * velocity > 0).astype(np.int32))
    np.testing.assert_array_equal(row.step_type, MID)
  row = batch.step(np.zeros(2, np.int32))
  np.testing.assert_array_equal(row.step_type, LAST)
  np.testing.assert_array_equal(row.discount, 1)


def test_box_actions():
  batch = registry.make('gymnasium:Pendulum-v1', 2, 0, 'max_episode_steps=1')
  assert batch.action_spec() == specs.BoundedArray((1,), np.float32, -2, 2, 'action')
  batch.reset()
  row = batch.step(np.zeros((2, 1), np.float32))
  np.testing.assert_array_equal(row.step_type, LAST)
  np.testing.assert_array_equal(row.discount, 1)
  assert (row.reward < 0).all()


def test_box_actions_reach_the_environments():
  """A torque turns a pendulum, and the rows are those of single environments, truncation included."""
  seed, limit = 5, 7
  batch = registry.make('gymnasium:Pendulum-v1', 2, seed, f'max_episode_steps={limit}')
  singles = [gymnasium.make('Pendulum-v1', max_episode_steps=limit) for _ in range(2)]
  batch.reset()
  for single, env_seed in zip(singles, seeding.spawn(seed, 2), strict=True):
    single.reset(seed=env_seed)
  rng = np.random.default_rng(0)
  for t in range(1, limit + 1):
    action = rng.uniform(-2, 2, (2, 1)).astype(np.float32)
    row = batch.step(action)
    for i, single in enumerate(singles):
      observation, reward, terminated, truncated, _ = single.step(action[i])
      np.testing.assert_array_equal(row.observation[i], observation)
      np.testing.assert_allclose(row.reward[i], reward, rtol=1e-6)
      assert (truncated, terminated) == (t == limit, False)
    np.testing.assert_array_equal(row.step_type, LAST if t == limit else MID)
    np.testing.assert_array_equal(row.discount, 1)
  np.testing.assert_array_equal(batch.step(action).step_type, FIRST)


class Probe(gymnasium.Env):
  """Shows a dict with the last action; actions are 3, 4 and 5."""

  observation_space = spaces.Dict({'last': spaces.Discrete(6), 'x': spaces.Box(0, 1, (2,))})
  action_space = spaces.Discrete(3, start=3)
  shown = {}

  def reset(self, *, seed=None, options=None):
    super().reset(seed=seed)
    return self.show(np.zeros_like(self.action_space.sample())), {}

  def step(self, action):
    return self.show(action), 0.0, False, False, {}

  def show(self, action):
    return {'last': action, 'x': np.ones(2, np.float32), **self.shown}


@pytest.fixture
def probe_id():
  gymnasium.register('Probe-v0', Probe)
  yield 'Probe-v0'
  del gymnasium.registry['Probe-v0']


def test_dicts_are_flattened_and_actions_count_from_zero(probe_id):
  batch = registry.make(f'gymnasium:{probe_id}', 2, 0)
  assert batch.action_spec() == specs.DiscreteArray(3, np.int32, 'action')
  assert batch.observation_spec().shape == (8,)
  batch.reset()
  row = batch.step(np.array([0, 2], np.int32))
  np.testing.assert_array_equal(row.observation[0], [0, 0, 0, 1, 0, 0, 1, 1])
  np.testing.assert_array_equal(row.observation[1], [0, 0, 0, 0, 0, 1, 1, 1])


def test_dicts_and_tuples_stay_nests_if_they_are_not_to_be_flattened(probe_id, monkeypatch):
  parts = {'last': spaces.Discrete(6), 'more': spaces.Tuple([spaces.Discrete(3, start=7)])}
  parts['x'] = spaces.Box(0, 1, (2,), np.float64)
  monkeypatch.setattr(Probe, 'observation_space', spaces.Dict(parts))
  monkeypatch.setattr(Probe, 'shown', {'more': (9,)})
  batch = registry.make(f'gymnasium:{probe_id}', 2, 0, 'flatten=false')
  assert batch.observation_spec() == {
    'last': specs.DiscreteArray(6, np.int32, 'last'),
    'more': (specs.DiscreteArray(3, np.int32, '0'),),
    'x': specs.Array((2,), np.float32, 'x'),
  }
  batch.reset()
  observation = batch.step(np.array([0, 2], np.int32)).observation
  assert type(observation) is dict and type(observation['more']) is tuple
  np.testing.assert_array_equal(observation['last'], [3, 5])
  np.testing.assert_array_equal(observation['more'][0], [2, 2])
  np.testing.assert_array_equal(observation['x'], np.ones((2, 2)))
  dtypes = observation['last'].dtype, observation['more'][0].dtype, observation['x'].dtype
  assert dtypes == (np.int32, np.int32, np.float32)


def test_the_vector_of_a_nest_is_that_of_gymnasium(probe_id, monkeypatch):
  space = spaces.Dict(
    {
      'z': spaces.Box(-1, 1, (2, 3), np.float64),
      'label': spaces.Discrete(4, start=-1),
      'more': spaces.Tuple(
        [spaces.MultiDiscrete([2, 3], start=[1, 0]), spaces.MultiBinary((2, 2))]
      ),
      'bytes': spaces.Box(0, 255, (5,), np.uint8),
      'word': spaces.Text(3, charset='ab'),
    },
    seed=0,
  )
  shown = []

  def show(self, action):
    shown.append(space.sample())
    return shown[-1]

  monkeypatch.setattr(Probe, 'observation_space', space)
  monkeypatch.setattr(Probe, 'show', show)
  batch = registry.make(f'gymnasium:{probe_id}', 2, 0)
  rows = [batch.reset(), batch.step(np.zeros(2, np.int32))]
  expected = np.float32([spaces.flatten(space, sample) for sample in shown]).reshape(2, 2, -1)
  np.testing.assert_array_equal([row.observation for row in rows], expected)
  assert rows[0].observation.dtype == batch.observation_spec().dtype == np.float32


@pytest.mark.parametrize('inner', [False, True])
def test_a_nest_with_an_image_is_flattened_only_where_that_is_asked_for(
  probe_id, monkeypatch, inner
):
  image = spaces.Box(0, 255, (4, 5, 3), np.uint8)
  parts = {'x': spaces.Box(0, 1, (2,)), 'camera': spaces.Dict({'left': image}) if inner else image}
  monkeypatch.setattr(Probe, 'observation_space', spaces.Dict(parts))
  pixels = np.arange(60, dtype=np.uint8).reshape(4, 5, 3)
  monkeypatch.setattr(Probe, 'shown', {'camera': {'left': pixels} if inner else pixels})
  name = f'gymnasium:{probe_id}'
  vectors = SyncVectorEnv([Probe] * 2, autoreset_mode=AutoresetMode.NEXT_STEP)
  for batch in (registry.make(name, 2, 0), GymnasiumBatch(vectors, 0)):
    spec, shown = batch.observation_spec()['camera'], batch.reset().observation['camera']
    spec, shown = (spec['left'], shown['left']) if inner else (spec, shown)
    assert (spec.shape, spec.dtype) == ((4, 5, 3), np.uint8)
    np.testing.assert_array_equal(shown, [pixels] * 2)
  assert registry.make_spec(name, 'flatten=true').observations.shape == (62,)
  assert registry.make_spec(name, 'flatten=false') == registry.make_spec(name)
  with pytest.raises(ValueError, match='flatten=perhaps: flatten must be auto, true or false'):
    registry.make_spec(name, 'flatten=perhaps')


def test_an_action_mask_stays_beside_the_vector_of_the_rest(probe_id, monkeypatch):
  parts = dict(Probe.observation_space.spaces) | {'action_mask': spaces.MultiBinary(3)}
  monkeypatch.setattr(Probe, 'observation_space', spaces.Dict(parts))
  monkeypatch.setattr(Probe, 'shown', {'action_mask': np.array([1, 0, 1], np.int8)})
  batch = registry.make(f'gymnasium:{probe_id}', 2, 0)
  assert {name: spec.shape for name, spec in batch.observation_spec().items()} == {
    'observation': (8,),
    'action_mask': (3,),
  }
  batch.reset()
  observation = batch.step(np.array([0, 2], np.int32)).observation
  np.testing.assert_array_equal(observation['observation'][0], [0, 0, 0, 1, 0, 0, 1, 1])
  np.testing.assert_array_equal(observation['action_mask'], [[1, 0, 1]] * 2)


def test_several_discrete_actions_count_from_zero(probe_id, monkeypatch):
  monkeypatch.setattr(Probe, 'action_space', spaces.MultiDiscrete([2, 3], start=[1, 0]))
  monkeypatch.setattr(Probe, 'observation_space', spaces.Box(0, 9, (2,), np.float32))
  monkeypatch.setattr(Probe, 'show', lambda self, action: np.float32(action))
  batch = registry.make(f'gymnasium:{probe_id}', 2, 0)
  assert batch.action_spec() == specs.BoundedArray((2,), np.int32, 0, [1, 2], 'action')
  batch.reset()
  row = batch.step(np.array([[0, 0], [1, 2]], np.int32))
  np.testing.assert_array_equal(row.observation, [[1, 0], [2, 2]])


@pytest.mark.parametrize('space', [spaces.MultiBinary(2), spaces.Box(-np.inf, np.inf, (2,))])
def test_actions_without_an_array_form_or_bounds_are_rejected(probe_id, monkeypatch, space):
  monkeypatch.setattr(Probe, 'action_space', space)
  with pytest.raises(
    ValueError, match=f'--env=gymnasium:{probe_id} cannot be made here: the action space is neither'
  ):
    registry.make(f'gymnasium:{probe_id}', 1, 0)


def test_observations_without_an_array_form_are_rejected(probe_id, monkeypatch):
  monkeypatch.setattr(Probe, 'observation_space', spaces.Sequence(spaces.Discrete(2)))
  with pytest.raises(
    ValueError, match=f'--env=gymnasium:{probe_id} cannot be made here: the observation space'
  ):
    registry.make(f'gymnasium:{probe_id}', 1, 0)


@pytest.mark.parametrize(
  ('task', 'module', 'package'),
  [('LunarLander-v3', 'Box2D', 'Box2D'), ('HalfCheetah-v5', 'mujoco', 'MuJoCo')],
)
def test_a_missing_package_is_named(task, module, package):
  out = run_python(
    '-c',
    f'import sys\n'
    f'sys.modules[{module!r}] = None\n'
    f'from environments import registry\n'
    f'try: registry.trial("gymnasium:{task}")\n'
    f'except ValueError as error: print(error)',
  )
  assert f'--env=gymnasium:{task} cannot be made here: {package} is not installed' in out
  assert out.count('\n') == 1 and 'pip install' not in out
  assert f"`make add PACKAGES='gymnasium[{module.lower()}]'`" in out


_MINE = """
{first}
import gymnasium
import numpy as np

class Mine(gymnasium.Env):
  observation_space = gymnasium.spaces.Box(0, 1, (2,))
  action_space = gymnasium.spaces.Discrete(2)
  def __init__(self):
    {making}
  def reset(self, *, seed=None, options=None):
    return np.zeros({size}, np.float32), {{}}
  def step(self, action):
    return np.zeros(2, np.float32), 0.0, False, False, {{}}

gymnasium.register('Mine-v0', Mine)
"""


@pytest.mark.parametrize(
  'changes, words',
  [
    ({}, ''),
    (
      {'first': 'import nothing_like_it'},
      "cannot be made here: .*No module named 'nothing_like_it'",
    ),
    (
      {'making': 'import nothing_like_it'},
      "cannot be made here: .*No module named 'nothing_like_it'",
    ),
    (
      {'making': 'raise KeyError(3)'},
      r'cannot be made here: KeyError: 3, at line 10 of .*: raise KeyError\(3\)',
    ),
    (
      {'size': '3'},
      r'observation is float32 \[3\], but declared as float32 \[2\] \(reset\(\) of Mine, at line 11',
    ),
  ],
)
def test_an_environment_of_a_module_of_ones_own_is_tried(tmp_path, monkeypatch, changes, words):
  module = f'mine_{tmp_path.name}'
  parts = {'first': '', 'making': 'pass', 'size': '2'} | changes
  (tmp_path / f'{module}.py').write_text(_MINE.format(**parts))
  monkeypatch.syspath_prepend(str(tmp_path))
  monkeypatch.setattr(gymnasium.envs.registration, 'registry', dict(gymnasium.registry))
  name = f'gymnasium:{module}:Mine-v0'
  if not words:
    assert registry.trial(name).spec.actions.num_values == 2
    return
  with pytest.raises(ValueError, match=words) as error:
    registry.trial(name)
  assert name in str(error.value) and '\n' not in str(error.value)


class Base(Probe):
  def __init__(self, size: 'int | None' = None, needed=None, **others):
    self.seen = {'size': size, **others}


class Configured(Base):
  def __init__(self, length: int = 10, noise=0, wide=False, goal='a', places=(1, 2), **others):
    super().__init__(**others)
    self.seen |= {'length': length, 'noise': noise, 'wide': wide, 'goal': goal, 'places': places}


class Strict(Base):
  def __init__(self, depth=None, rate: float = 1, goals: 'list[str] | None' = None, **others):
    super().__init__(**others)
    self.seen |= {'depth': depth, 'rate': rate}


class Closed(Strict):
  def __init__(self, depth=3, flatten=0):
    super().__init__(depth=depth)


@pytest.fixture
def configured():
  before = dict(gymnasium.registry)
  gymnasium.register('Configured-v0', Configured, kwargs={'goal': 'b', 'noise': 0.5})
  gymnasium.register('Strict-v0', Strict)
  gymnasium.register('Closed-v0', Closed, kwargs={'depth': 4})
  yield
  gymnasium.registry.clear()
  gymnasium.registry.update(before)


def _seen(task, options):
  batch = registry.make(f'gymnasium:{task}', 1, 0, options)
  return batch._env.unwrapped.envs[0].unwrapped.seen


@pytest.mark.usefixtures('configured')
def test_options_of_the_constructor_have_the_types_that_it_says():
  seen = _seen('Configured-v0', 'length=60,noise=2,wide=yes,size=3,max_episode_steps=7')
  assert seen == {
    **{'length': 60, 'noise': 2.0, 'wide': True, 'goal': 'b', 'places': (1, 2), 'size': 3}
  }
  assert type(seen['noise']) is float and type(seen['wide']) is bool
  # A text that looks like a number stays one; what any keyword takes has the type that it looks like.
  assert _seen('Configured-v0', 'goal=8')['goal'] == '8'
  assert _seen('Configured-v0', 'any=8,other=1e3,third=true,word=x')['third'] is True
  assert _seen('Configured-v0', 'any=8,other=1e3')['other'] == 1000.0
  assert _seen('Strict-v0', 'depth=4,rate=2')['rate'] == 2.0
  assert _seen('Strict-v0', 'depth=none')['depth'] is None
  assert _seen('Strict-v0', 'depth=2.5')['depth'] == 2.5


@pytest.mark.usefixtures('configured')
@pytest.mark.parametrize(
  'task, options, words',
  [
    ('Configured-v0', 'length=many', ['length must be an integer']),
    ('Configured-v0', 'places=3', ['places of gymnasium:Configured-v0 is a tuple', 'a factory']),
    ('Strict-v0', 'goals=x', ['goals of gymnasium:Strict-v0 is list[str] | None', 'a factory']),
    ('Closed-v0', 'dept=3', ['did you mean depth?', 'depth=4', 'max_episode_steps=0']),
    ('Closed-v0', 'num_envs=3', ['--env_options=num_envs: gymnasium:Closed-v0 has no such option']),
    ('LunarLander-v3', 'continuos=true', ['did you mean continuous?', 'continuous=False']),
    ('HalfCheetah-v5', 'frameskip=4', ['did you mean frame_skip?', 'frame_skip=5', 'width=480']),
    ('CartPole-v1', 'gravity=3', ['gravity', 'sutton_barto_reward=False']),
    ('Missing-v0', 'gravity=3', ['gymnasium has no Missing-v0']),
  ],
)
def test_an_option_that_the_constructor_lacks_is_refused_with_those_that_it_has(
  task, options, words
):
  with pytest.raises(ValueError) as error:
    registry.make(f'gymnasium:{task}', 1, 0, options)
  assert '\n' not in str(error.value)
  for word in words:
    assert word in str(error.value)
  assert 'model_path' not in str(error.value) and 'camera_config' not in str(error.value)


@pytest.mark.parametrize(
  'name, options, shape',
  [
    ('gymnasium:LunarLander-v3', 'continuous=true', (2,)),
    ('gymnasium:FrozenLake-v1', 'map_name=8x8,is_slippery=false', ()),
    ('dm_control:cartpole/three_poles', 'num_poles=2,sparse=true', (1,)),
  ],
)
def test_environments_take_the_options_of_their_constructors(name, options, shape):
  assert registry.make_spec(name, options).actions.shape == shape
  with pytest.raises(ValueError, match=r'^--env_options=nothing: .* has no such option'):
    registry.make_spec(name, f'{options},nothing=1')


@pytest.mark.parametrize(
  'shown, said',
  [
    ({}, 'observation/camera/left is missing, but declared as uint8 [4, 5, 3]'),
    (
      {'camera': {'left': np.zeros((5, 4, 3), np.uint8)}},
      'observation/camera/left is uint8 [5, 4, 3], but declared as uint8 [4, 5, 3]',
    ),
    (
      {'camera': {'left': np.full((4, 5, 3), 0.5)}},
      'observation/camera/left is float64 [4, 5, 3], but declared as uint8 [4, 5, 3]',
    ),
    ({'x': np.zeros(1)}, 'observation/x is float64 [1], but declared as float32 [2]'),
  ],
)
def test_an_observation_that_does_not_fit_its_space_is_named(probe_id, monkeypatch, shown, said):
  image = spaces.Box(0, 255, (4, 5, 3), np.uint8)
  parts = {'x': spaces.Box(0, 1, (2,)), 'camera': spaces.Dict({'left': image})}
  monkeypatch.setattr(Probe, 'observation_space', spaces.Dict(parts))
  fits = {'camera': {'left': np.zeros((4, 5, 3), np.uint8)}}
  monkeypatch.setattr(Probe, 'shown', (fits if 'x' in shown else {}) | shown)
  for flatten in ('true', 'false'):
    batch = registry.make(f'gymnasium:{probe_id}', 2, 0, f'flatten={flatten}')
    with pytest.raises(ValueError) as error:
      batch.reset()
    assert f'the {said} (reset() of Probe, at line' in str(error.value)


def test_a_module_that_there_is_not_is_an_unknown_task():
  with pytest.raises(ValueError, match='gymnasium has no nothing_like_it:Mine-v0'):
    registry.trial('gymnasium:nothing_like_it:Mine-v0')


@pytest.mark.parametrize(
  ('task', 'sentence'),
  [
    ('HalfCheetah-v3', 'moved to the gymnasium-robotics project'),
    ('LunarLander-v2', 'use `LunarLander-v3` instead'),
  ],
)
def test_an_environment_that_gymnasium_has_removed_is_rejected(task, sentence):
  with pytest.raises(ValueError, match=sentence):
    registry.make(f'gymnasium:{task}', 1, 0)


@pytest.mark.filterwarnings('ignore::pytest.PytestUnraisableExceptionWarning')  # MuJoCo's own.
def test_mujoco_is_not_drawn_where_it_has_no_graphics_library(monkeypatch):
  monkeypatch.setenv('MUJOCO_GL', 'none')
  batch = registry.make('gymnasium:InvertedPendulum-v5', 1, 0)
  batch.reset()
  assert batch.render() is None
  batch.close()


def test_other_autoreset_modes_are_rejected():
  vector_env = SyncVectorEnv(
    [lambda: gymnasium.make('CartPole-v1')], autoreset_mode=AutoresetMode.SAME_STEP
  )
  with pytest.raises(ValueError, match='next step'):
    GymnasiumBatch(vector_env, 0)


def test_closing_twice_is_closing_once():
  batch = GymnasiumBatch(CartPoleVectorEnv(2), 0)
  batch.close()
  batch.close()
