"""The updates that a run's options amount to; every preset amounts to enough of them."""

import numpy as np
import pytest

from agents.options import flatten, make, replace
from agents.types import Timestep
from nodes.unrolls.assembler import CoreStateRows, UnrollAssembler
from programs import estimates, r2d2, registry
from programs.options import changes, configs
from programs.options.inference import InferenceConfig

DISCRETE = {'muzero', 'r2d2'}  # Programs whose agents take no continuous actions.
CONTINUOUS = {'dm_control'}  # Families without a task that these could play.
FAMILIES = [
  (program, family)
  for program in registry.PROGRAMS
  for family in (*registry.load(program).environments.families(), 'mine.py:make')
  if program not in DISCRETE or family not in CONTINUOUS
  # A generation of evolution has as many steps as its episodes, which nobody knows.
  if program != 'evolution'
]


def config_of(program, **values):
  return configs.resolve(registry.load(program), values)


@pytest.mark.parametrize('program, family', FAMILIES)
def test_every_family_can_be_learned_by_every_program_within_its_own_steps(program, family):
  config = config_of(program, env=family)
  config.validate()
  estimates.check(config)
  assert estimates.warnings(config) == []
  run = estimates.expected(config)
  assert run.updates >= 900
  assert run.first_batch <= 0.2 * config.run.num_steps
  assert (run.copies is not None) == (program in ('muzero', 'qt_opt', 'r2d2'))
  assert run.copies is None or run.copies >= 10


@pytest.mark.parametrize('num_steps', [10_000, 10_001, 12_345, 99_999])
@pytest.mark.parametrize('burn_in, unroll_length', [(0, 20), (8, 20), (40, 7)])
def test_the_number_of_unrolls_is_that_of_the_assembler(num_steps, burn_in, unroll_length):
  config = make(
    r2d2.Config,
    num_actors=1,
    envs_per_actor=40,
    num_steps=num_steps,
    burn_in=burn_in,
    unroll_length=unroll_length,
    batch_size=1,
    min_replay_size=80,
    samples_per_insert=1.0,
  ).resolve()
  assembler = UnrollAssembler(1, burn_in + unroll_length + 1, unroll_length)
  one = np.zeros(1, np.uint8)
  timestep, state = Timestep(one, one, one, one), CoreStateRows({}, 0, 1)
  unrolls, filled = 0, None
  for row in range(num_steps // 40):
    done = assembler.append(timestep, one, {}, 0, state)
    if done is not None:
      assembler.release(done)
      unrolls += 40
      if filled is None and unrolls >= 80:
        filled = 40 * (row + 1)
  run = estimates.expected(config)
  assert run.updates == unrolls - 80
  assert run.first_batch == filled


def test_updates_of_a_queue_are_over_the_batches_of_all_replicas():
  config = config_of('sebulba', num_steps=200_000, num_replicas=2, batch_size=32)
  unrolls = 64 * ((200_000 // 128 - 21) // 20 + 1)
  assert estimates.expected(config).updates == unrolls // 32
  assert estimates.expected(config).first_batch == 2 * 64 * 21


def test_updates_of_anakin_come_in_whole_calls():
  config = config_of('anakin', num_envs=16, updates_per_call=10, num_steps=10_000)
  # A call is 16 x 20 x 10 rows.
  assert estimates.expected(config).updates == 40


@pytest.mark.parametrize('samples_per_insert, min_replay_size', [(2.0, 50), (6.0, 16), (6.0, 160)])
def test_updates_of_anakin_with_replay_begin_when_it_is_filled(samples_per_insert, min_replay_size):
  config = config_of(
    'anakin',
    agent='muzero',
    num_envs=16,
    batch_size=16,
    updates_per_call=6,
    num_steps=5_000,
    samples_per_insert=samples_per_insert,
    min_replay_size=min_replay_size,
  )
  config.validate()
  assert (config.agent.unroll_length, config.agent.unroll_rows) == (8, 23)
  rows, unrolls, updates, first = 1, 0, 0, None
  while (rows - 1) * 16 < 5_000:
    for _ in range(6 // int(samples_per_insert)):
      rows += 8
      unrolls += 16 * (rows >= 23)
      if unrolls >= min_replay_size:
        updates += int(samples_per_insert)
        first = first or (rows - 1) * 16
  run = estimates.expected(config)
  assert (run.updates, run.most_updates, run.first_batch) == (updates, updates, first)
  assert run.copies == updates // config.agent.target_update_period


@pytest.mark.parametrize(
  'program, values, words',
  [
    ('r2d2', {'env': 'mine.py:make', 'min_replay_size': 900, 'num_steps': 25_000}, None),
    (
      'r2d2',
      {'env': 'mine.py:make', 'min_replay_size': 1100, 'num_steps': 20_000},
      ['--num_steps=20000', '--min_replay_size=1100', 'after about 23616 actor_steps'],
    ),
    ('r2d2', {'target_update_period': 1189}, ['--target_update_period=1189', '1188']),
    ('r2d2', {'target_update_period': 1188}, None),
    ('sebulba', {'num_steps': 1343}, ['--num_steps=1343', '--batch_size=16', '1344']),
    ('impala', {'num_steps': 1344}, None),
    ('anakin', {'num_steps': 1}, None),
    (
      'anakin',
      {'agent': 'muzero', 'num_steps': 1919},
      ['--num_steps=1919', '--min_replay_size=200', 'after about 1920 actor_steps'],
    ),
  ],
)
def test_only_runs_that_learn_nothing_are_rejected(program, values, words):
  config = config_of(program, **values)
  if words is None:
    estimates.check(config)
    return
  with pytest.raises(ValueError) as raised:
    estimates.check(config)
  for word in words:
    assert word in str(raised.value)


@pytest.mark.parametrize(
  'program, values, words',
  [
    ('sebulba', {'num_steps': 100_000}, ['about 312 updates', '--batch_size']),
    ('anakin', {'num_steps': 100_000}, ['about 80 updates', '--num_envs']),
    (
      'r2d2',
      {'target_update_period': 1000},
      ['about 1,184 updates, 1 target copies: lower --target_update_period=1000'],
    ),
    ('r2d2', {'min_replay_size': 2_560}, ['about 51,776 of --num_steps=100000', '=2560']),
    ('sebulba', {'optimizer': 'rmsprop'}, ['--optimizer=rmsprop', '--loss_reduction=sum']),
  ],
)
def test_runs_that_learn_little_get_a_warning(program, values, words):
  said = estimates.warnings(config_of(program, **values))
  for word in words:
    assert any(word in sentence for sentence in said), said


def test_rmsprop_on_sums_or_with_a_small_epsilon_moves():
  for option in ({'loss_reduction': 'sum'}, {'rmsprop_eps': 1e-8}):
    assert estimates.warnings(config_of('sebulba', optimizer='rmsprop', **option)) == []


def test_a_linear_schedule_ends_with_the_run_also_when_the_run_is_extended():
  given = {'learning_rate_schedule': 'linear', 'num_steps': 200_000}
  config = config_of('sebulba', **given)
  assert config.agent.learning_rate_decay_steps == estimates.expected(config).updates == 624
  further = config_of('sebulba', **given | {'num_steps': 400_000})
  resumed = changes.keep(flatten(config), further, ['num_steps'])
  assert resumed.agent.learning_rate_decay_steps == 1248
  without_end = config_of('sebulba', **given | {'num_steps': 1 << 50})
  assert without_end.agent.learning_rate_decay_steps == 2**31 - 1
  fixed = config_of('sebulba', **given, learning_rate_decay_steps=9)
  assert fixed.agent.learning_rate_decay_steps == 9
  fixed.validate()


def test_a_temperature_falls_within_the_run():
  config = config_of('muzero')
  assert config.agent.temperature_decay_steps == estimates.expected(config).updates > 1000
  assert config.agent.learning_rate_decay_steps == 0  # Its schedule is constant.
  assert config_of('muzero', temperature_decay_steps=9).agent.temperature_decay_steps == 9


def test_an_unroll_of_muzero_has_the_rows_of_its_targets():
  config = config_of('muzero', unroll_length=7, num_unroll_steps=3, n_step=2)
  # One environment's first unroll has 7 + 3 + 2 rows, each further one 7 more.
  assert config.playing.unrolls(16 * 11) == 0
  assert config.playing.unrolls(16 * 12) == 16
  assert config.playing.unrolls(16 * 19) == 32


def test_a_resumed_run_keeps_values_that_another_version_would_choose_differently():
  config = config_of('r2d2')
  recorded = flatten(config) | {'unroll_length': 80, 'mlp_sizes': [7, 8], 'seed': 5, 'gone': 1}
  given = replace(config, num_steps=9, num_actors=3, n_step=2)
  kept = changes.keep(recorded, given, ['n_step'])
  expected = {'unroll_length': 80, 'mlp_sizes': (7, 8)}
  assert kept == replace(given, **expected)


def test_a_program_of_other_parts_is_left_alone():
  config = make(InferenceConfig, num_steps=1).resolve()
  assert estimates.expected(config) is None
  assert estimates.describe(config) == '' and estimates.warnings(config) == []
  estimates.check(config)
  assert estimates.with_decay(config) is config
