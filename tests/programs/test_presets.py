"""Which presets there are, what they set, and what follows from the run's own length or machine."""

import os

import pytest

from agents.options import flatten, replace
from agents.options import value as value_of
from programs import estimates, preset_list, r2d2, registry
from programs.options import agent_choice, configs, preset_choice, short_runs

LENGTHS = [100_000, 300_000, 1_000_000, 10_000_000]
RULED = list(short_runs.rules(longest_period=1))


def config_of(program, **values):
  return configs.resolve(registry.load(program), values)


@pytest.mark.parametrize('num_steps', LENGTHS)
@pytest.mark.parametrize('env', [*r2d2.PRESETS, 'atari:Pong', 'mine.py:make'])
def test_r2d2_has_updates_and_copies_in_runs_of_every_length(env, num_steps):
  config = config_of('r2d2', env=env, num_steps=num_steps)
  config.validate()
  estimates.check(config)
  assert estimates.warnings(config) == []
  run = estimates.expected(config)
  assert run.updates >= 500
  assert run.copies >= short_runs.COPIES
  assert run.first_batch <= short_runs.WARMUP * num_steps
  assert config.replay.batch_size <= config.replay.min_replay_size <= config.replay.replay_size / 10


@pytest.mark.parametrize(
  'values', [{'num_replicas': 2}, {'num_replay_shards': 4}, {'core': 'none'}]
)
def test_r2d2s_rules_count_replicas_and_shards(values):
  config = config_of('r2d2', env='mine.py:make', num_steps=1_000_000, **values)
  config.validate()
  run = estimates.expected(config)
  assert run.copies >= short_runs.COPIES
  assert run.first_batch <= short_runs.WARMUP * config.run.num_steps


def test_samples_per_insert_falls_from_dqns_to_r2d2s():
  ratios = [
    config_of('r2d2', env='atari', num_steps=steps).replay.samples_per_insert
    for steps in (1000, 10**6, 10**7, 10**8, 10**10, 1 << 40)
  ]
  assert ratios == [8.0, 8.0, 4.5, 2.5, 0.8, 0.8]


@pytest.mark.parametrize(
  'name, value',
  [('min_replay_size', 40), ('samples_per_insert', 3.0), ('target_update_period', 7)],
)
def test_a_flag_replaces_a_rule_and_the_rules_after_it_follow(name, value):
  by_rules, config = (config_of('r2d2', **values) for values in ({}, {name: value}))
  options_set_by_rules, given = flatten(by_rules), flatten(config)
  assert options_set_by_rules[name] != value and given[name] == value
  before = RULED[: RULED.index(name)]
  assert [given[n] for n in before] == [options_set_by_rules[n] for n in before]
  if name != 'target_update_period':
    period = config.agent.target_update_period
    assert period == estimates.expected(config).updates // short_runs.COPIES
    assert period != by_rules.agent.target_update_period


def test_options_of_the_environment_that_are_not_given_stay_as_in_the_preset():
  given = {'env': 'atari:Pong', 'agent': 'ppo'}
  preset = config_of('sebulba', **given).run.env_options
  assert preset == 'full_action_space=false,screen=42'
  changed = config_of('sebulba', **given, env_options='screen=84,sticky_actions=0')
  assert changed.run.env_options == 'full_action_space=false,screen=84,sticky_actions=0'
  assert config_of('sebulba', **given, env_options=preset).run.env_options == preset


def test_the_preset_of_a_task_adds_to_that_of_its_family_but_not_to_that_of_other_environments():
  presets = {
    preset_choice.OTHERS: {'discount': 0.9, 'num_envs': 32},
    'gymnax': {'discount': 0.95, 'num_envs': 64},
    'gymnax:Pendulum-v1': {'num_envs': 128},
    'minatar:breakout': {'num_envs': 256},
  }
  variant = agent_choice.Variant(None, presets)

  def preset(env):
    return preset_choice.options(variant, env, preset_choice.DEFAULT)

  assert preset('gymnax:Pendulum-v1') == {'discount': 0.95, 'num_envs': 128}
  assert preset('gymnax:Acrobot-v1') == presets['gymnax']
  assert preset('minatar:breakout') == {'num_envs': 256}
  assert preset('minatar:freeway') == presets[preset_choice.OTHERS]


def test_pqn_plays_a_game_of_minatar_with_its_authors_values_in_both_implementations():
  configs = [
    config_of('anakin', agent='pqn', env=env)
    for env in ('minatar:breakout', 'gymnax:Breakout-MinAtar')
  ]
  assert configs[0].agent == configs[1].agent
  for config in configs:
    agent = config.agent
    assert (value_of(config, 'num_envs'), agent.unroll_length, agent.q_lambda) == (128, 32, 0.65)
    assert (agent.num_epochs, agent.num_minibatches, agent.learning_rate) == (2, 32, 5e-4)


@pytest.mark.parametrize(
  'flag',
  [
    {name: value}
    for name in ('num_actors', 'envs_per_actor', 'batch_size', 'unroll_length', 'num_steps')
    for value in (0, -1)
  ]
  + [{'num_replicas': 0}, {'num_replay_shards': 0}, {'replay_size': 0}],
)
def test_rules_leave_the_error_about_a_bad_flag_to_its_check(flag):
  (name,) = flag
  with pytest.raises(ValueError, match=f'^--({name}|min_replay_size)') as raised:
    configs.make_config(r2d2, flag)
  assert f'--{name}' in str(raised.value)


def test_r2d2s_published_values_are_its_defaults():
  published = config_of('r2d2', env='atari:Pong', preset='published')
  defaults = config_of('r2d2', env='atari:Pong', preset='none')
  changed = {
    name: value for name, value in flatten(published).items() if value != value_of(defaults, name)
  }
  assert changed == {
    'preset': 'published',
    'frame_stack': 4,
    'env_options': 'sticky_actions=0,noop_max=30',
    'num_steps': 10_000_000_000,
    'eval_period': 500_000_000,
  }
  configs.check(r2d2, published)
  assert estimates.warnings(published) == []


@pytest.mark.parametrize('program', ['sebulba', 'impala'])
def test_impalas_published_values_are_those_of_table_g1(program):
  module = registry.load(program)
  config = configs.make_config(module, {'env': 'atari:Pong', 'preset': 'published'})
  agent = config.agent
  assert (agent.unroll_length, config.replay.batch_size, agent.frame_stack) == (20, 32, 4)
  assert (agent.discount, agent.baseline_cost, agent.entropy_cost) == (0.99, 0.5, 0.01)
  assert (agent.optimizer, agent.rmsprop_eps, agent.learning_rate) == ('rmsprop', 0.01, 6e-4)
  assert (agent.loss_reduction, agent.max_gradient_norm) == ('sum', 40.0)
  assert (agent.max_abs_reward, agent.vtrace_lambda, agent.core) == (1.0, 1.0, 'none')
  assert config.agent.learning_rate_decay_steps == estimates.expected(config).updates
  assert config.run.num_steps * 4 == 200_000_000  # Frames.
  assert estimates.warnings(config) == []


AGENTS = [
  (program, agent)
  for program in registry.PROGRAMS
  for agent in agent_choice.variants(registry.load(program))
]


@pytest.mark.parametrize('program, agent', AGENTS)
def test_none_leaves_every_default_of_the_agent(program, agent):
  module = registry.load(program)
  values = {'preset': 'none'} | ({'agent': agent} if agent else {})
  expected = agent_choice.variants(module)[agent].defaults
  expected = replace(expected, preset='none').resolve()
  assert configs.resolve(module, values) == estimates.with_decay(expected)


@pytest.mark.parametrize('program, agent', AGENTS)
def test_every_preset_of_every_agent_is_valid(program, agent):
  module = registry.load(program)
  variant = agent_choice.variants(module)[agent]
  for name, table in preset_choice.tables(variant).items():
    for env in table:
      values = {'env': env, 'preset': name} | ({'agent': agent} if agent else {})
      config = configs.resolve(module, values)
      config.validate()
      estimates.check(config)
      assert estimates.warnings(config) == [], (env, name)


OWN = """
import dataclasses
from programs.options.inference import InferenceConfig
from programs.options.rule import Rule

@dataclasses.dataclass(frozen=True)
class Config(InferenceConfig):
  pass

PRESETS = {
  'catch': {
    'num_actors': Rule('one for two cores', lambda config: max(config.run.cpu_cores // 2, 1)),
    'envs_per_actor': Rule('256 / num_actors', lambda config: 256 // config.acting.num_actors),
  },
}
NAMED_PRESETS = {
  'broken': {'*': {'num_actors': Rule('a mistake', lambda config: 1 // 0)}},
  'empty': {'*': {'num_actors': Rule('none', lambda config: 0), 'envs_per_actor': Rule(
    '64 / num_actors', lambda config: 64 // config.acting.num_actors)}},
}

def make_program(config):
  raise NotImplementedError
"""


@pytest.fixture
def own_program(tmp_path):
  path = tmp_path / 'mine.py'
  path.write_text(OWN)
  return f'{path}:make_program'


def test_a_rule_may_follow_the_cores_and_the_config_has_the_numbers(own_program):
  config = config_of(own_program, cpu_cores=16)
  assert (config.acting.num_actors, config.acting.envs_per_actor, config.num_environments) == (
    8,
    32,
    256,
  )
  assert config.inference.inference_batch_size == 128
  # Values as recorded need no rule, on any machine.
  assert config_of(own_program, **flatten(config) | {'cpu_cores': 2}).acting.num_actors == 8
  cores = len(os.sched_getaffinity(0))
  assert config_of(own_program).run.cpu_cores == cores
  assert config_of(own_program).acting.num_actors == max(cores // 2, 1)


def test_the_list_shows_what_a_users_own_rules_give(own_program):
  text = preset_list.listing(own_program, {'cpu_cores': 8, 'env': 'catch', 'preset': 'default'})
  assert text.splitlines() == [
    'program mine, preset default, catch',
    '  option          value  default',
    '  num_actors      4      2        one for two cores',
    '  envs_per_actor  64     32       256 / num_actors',
  ]


def test_a_rule_that_raises_is_one_sentence_with_the_option(own_program):
  with pytest.raises(ValueError, match=r'^--num_actors: .*a mistake.* ZeroDivisionError: .*none.$'):
    config_of(own_program, preset='broken')
  assert config_of(own_program, preset='broken', num_actors=3).acting.num_actors == 3


def test_a_rules_value_is_in_range_before_the_next_rule_computes_with_it(own_program):
  with pytest.raises(
    ValueError, match=r'^--num_actors is 0: set it to a number from 1 to 65536\.$'
  ):
    config_of(own_program, preset='empty')


@pytest.mark.parametrize('game', ['Asterix', 'Breakout', 'Freeway', 'Seaquest', 'SpaceInvaders'])
@pytest.mark.parametrize(
  'program, agent', [pair for pair in AGENTS if pair[0] in ('anakin', 'gala', 'population')]
)
def test_a_game_of_minatar_has_its_preset_under_the_name_of_gymnax_too(program, agent, game):
  variant = agent_choice.variants(registry.load(program))[agent]
  ours, gymnaxs = (
    preset_choice.options(variant, env, preset_choice.DEFAULT)
    for env in (f'minatar:{game}', f'gymnax:{game}-MinAtar')
  )
  assert gymnaxs == gymnaxs | ours
