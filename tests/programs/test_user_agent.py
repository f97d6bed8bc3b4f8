"""An agent of the user's own, --agent=path/to/mine.py:MyAgent, in every program."""

import dataclasses
import json

import cloudpickle
import pytest

from agents.options import flatten
from environments import separate_process, user_file
from nodes.learning import tracing
from programs import agent_check, registry
from programs.options import agent_choice, configs, early, user_agent
from programs.runs import Run
from rundir import run_directory
from tests.programs_under_test import ROOT, launch, run_main

TEMPERED = f'{ROOT}/examples/tempered.py:Tempered'
MUNCHAUSEN = f'{ROOT}/examples/munchausen.py:Munchausen'
# What each program trains, as a class that adds an option and changes a default.
AGENTS = {
  'VTrace': ('vtrace', ['sebulba', 'impala', 'anakin', 'gala', 'gala_sebulba', 'population']),
  'PPO': ('ppo', ['sebulba', 'anakin']),
  'PQN': ('pqn', ['impala', 'anakin']),
  'R2D2': ('r2d2', ['r2d2', 'anakin']),
  'MuZero': ('muzero', ['muzero']),
  'QTOpt': ('qt_opt', ['qt_opt']),
  'SAC': ('sac', ['sac']),
  'IntrinsicRewards': ('intrinsic_rewards', ['intrinsic_rewards']),
}
CASES = [(cls, program) for cls, (_, programs) in AGENTS.items() for program in programs]
FILE = """
import dataclasses
import jax.numpy as jnp
from agents.options import option
from agents.MODULE.agent import CLASS

class Mine(CLASS):
  @dataclasses.dataclass(frozen=True)
  class Config(CLASS.Config):
    colour: str = option('green', 'what it likes')
    learning_rate: float = 0.5

    def _check(self):
      if self.colour == 'red':
        raise ValueError('--colour is red: choose another.')

  def policy(self, params, output, *others):
    assert self._config.colour == 'blue'  # The instance has the class's own options.
    return super().policy(params, output, *others)

  def loss(self, params, *others):
    loss, rest = super().loss(params, *others)
    return 2.0 * loss, rest
"""


@pytest.fixture(autouse=True)
def read_in_this_process(request, monkeypatch):
  """A process that imports JAX to read a class takes seconds; a test marked `slow` has one."""
  if not request.node.get_closest_marker('slow'):
    call = separate_process.call

    def here(function, *arguments, **kwargs):
      if function == 'programs.options.user_agent:describe':
        return user_agent.describe(*arguments)
      return call(function, *arguments, **kwargs)

    monkeypatch.setattr(separate_process, 'call', here)


@pytest.fixture
def mine(tmp_path):
  """Writes an agent that derives from a class, changed by replacements; returns its name."""

  def write(cls='VTrace', *replaced):
    text = FILE.replace('MODULE', AGENTS[cls][0]).replace('CLASS', cls)
    for old, new in replaced:
      assert old in text
      text = text.replace(old, new)
    (tmp_path / 'mine.py').write_text(text)
    return f'{tmp_path}/mine.py:Mine'

  return write


def _resolved(program, **given):
  module = registry.load(program)
  return Run(program, module, given, configs.resolve(module, given))


def _tried(run):
  """Tries a run's agent in this process; returns it."""
  module, config = run.module, run.config
  own = run.program if user_file.is_spec(run.program) else ''
  agent_check.trial(module.make_agent(config), module.environments, config, own, source=None)


@pytest.mark.parametrize('cls, program', CASES)
def test_every_program_takes_an_agent_that_derives_from_its_own(mine, cls, program):
  run = _resolved(program, agent=mine(cls), colour='blue', preset='none')
  assert (run.config.agent.colour, run.config.agent.learning_rate) == ('blue', 0.5)
  _tried(run)
  # It has the presets of the agent that it derives from.
  base = AGENTS[cls][0]
  presets = agent_choice.variant_of(run.module, run.config).presets
  assert presets == agent_choice.variants(run.module)[base].presets and presets


def test_flags_win_over_presets_which_win_over_the_defaults_of_the_class(mine):
  agent = mine('PPO')
  preset = _resolved('sebulba', agent='ppo', env='cartpole').config.agent.learning_rate
  for given, expected in ({}, preset), ({'preset': 'none'}, 0.5), ({'learning_rate': 0.25}, 0.25):
    run = _resolved('sebulba', agent=agent, env='cartpole', **given)
    assert run.config.agent.learning_rate == expected


def test_an_own_program_takes_it_too(mine):
  _tried(_resolved(f'{ROOT}/examples/mine.py:make_program', agent=mine(), colour='blue'))


OTHER = """
import functools
from environments import user_file
from programs import sebulba
from programs.sebulba import Config, make_program, placement

def make_agent(config):
  return functools.partial(user_file.named(NAME), config.agent)
"""


def test_an_own_program_that_builds_another_agent_is_refused(mine, tmp_path):
  agent = mine()
  (tmp_path / 'own.py').write_text(OTHER.replace('NAME', repr(TEMPERED)))
  program = f'{tmp_path}/own.py:make_program'
  run = _resolved(program, agent=agent, colour='blue')
  run = dataclasses.replace(run, config=_with_hottest(run.config))
  with pytest.raises(ValueError, match=r'make_agent of .* returns another agent, Tempered; let it'):
    _tried(run)


def _with_hottest(config):
  """Returns a config with an option more, which the other agent needs."""
  fields = [('hottest', float, 2.0)]
  cls = dataclasses.make_dataclass('Config', fields, bases=(type(config.agent),), frozen=True)
  return dataclasses.replace(config, agent=cls(**vars(config.agent)))


@pytest.mark.parametrize(
  'program, cls, replaced, words',
  [
    (
      'sebulba',
      'R2D2',
      [],
      'derives from r2d2, and this program trains vtrace or ppo or pqn; derive it from',
    ),
    (
      'r2d2',
      'VTrace',
      [],
      'derives from vtrace, and this program trains r2d2; .* --program=sebulba',
    ),
    ('sebulba', 'VTrace', [('class Mine', 'class Nine')], 'no Mine; did you mean Nine'),
    (
      'sebulba',
      'VTrace',
      [('import jax', 'import jux')],
      'importing it raised ModuleNotFoundError',
    ),
    ('sebulba', 'VTrace', [('Mine(VTrace)', 'Mine')], 'is no agent; derive it from one'),
    ('sebulba', 'VTrace', [('(VTrace.Config)', '')], 'derive its Config from VTrace.Config'),
    (
      'sebulba',
      'VTrace',
      [('  @dataclasses.dataclass(frozen=True)\n', '')],
      'write @dataclasses.dataclass.frozen=True. above its Config',
    ),
    (
      'sebulba',
      'VTrace',
      [('colour: str', 'num_actors: str')],
      'adds the option num_actors, which',
    ),
    ('sebulba', 'VTrace', [("'green'", '{}')], 'ValueError: mutable default'),
    ('sebulba', 'VTrace', [("'green'", 'None')], 'the option colour of its Config needs a default'),
  ],
)
def test_an_agent_that_does_not_fit_is_refused_in_one_sentence(mine, program, cls, replaced, words):
  agent = mine(cls, *replaced)
  with pytest.raises(ValueError, match=words) as error:
    _resolved(program, agent=agent, colour='blue')
  assert str(error.value).startswith(f'--agent={agent}') and '\n' not in str(error.value)


def test_what_derives_from_no_agent_of_the_repository_is_refused(tmp_path):
  (tmp_path / 'mine.py').write_text('from agents.agent import Agent\nclass Mine(Agent): pass\n')
  with pytest.raises(ValueError, match='derives from no agent of this repository'):
    _resolved('sebulba', agent=f'{tmp_path}/mine.py:Mine')


def test_its_own_checks_speak_before_anything_starts(mine):
  with pytest.raises(ValueError, match=r'^--colour is red: choose another.$'):
    _tried(_resolved('sebulba', agent=mine(), colour='red'))


def test_a_mistake_in_it_is_reported_with_its_line(mine):
  mistake = 'others[0].timestep.reward[:, 1:] - others[0].timestep.discount'
  agent = mine('VTrace', ('2.0 * loss', mistake))
  with pytest.raises(ValueError) as error:
    _tried(_resolved('sebulba', agent=agent, colour='blue'))
  said = str(error.value)
  assert said.startswith(f'--agent={agent}: trying it raised TypeError') and mistake in said


@pytest.mark.parametrize('program', ['r2d2', 'anakin'])
def test_an_agent_without_priorities_is_refused_where_replay_is_prioritized(mine, program):
  silent = (
    '\n  def update(self, *args):\n    return super().update(*args)._replace(priorities=None)\n'
  )
  agent = mine('R2D2', ('  def loss', f'{silent}\n  def loss'))
  with pytest.raises(ValueError, match='update returned no priorities; this program samples by'):
    _tried(_resolved(program, agent=agent, colour='blue'))


@pytest.mark.parametrize(
  'option',
  [
    {'normalize_rewards': True},
    {'normalize_observations': True},
    {'frame_stack': 2, 'core': 'lstm'},
    {'torso': f'{ROOT}/examples/fourier.py:Fourier'},
  ],
)
def test_the_example_works_with_every_option_of_its_base(option):
  _tried(_resolved('sebulba', agent=TEMPERED, **option))


def test_a_config_crosses_to_other_processes(mine):
  config = _resolved('sebulba', agent=mine(), colour='blue').config
  other = cloudpickle.loads(cloudpickle.dumps(config))
  assert (other.run.agent, other.agent.colour) == (config.run.agent, 'blue')
  assert flatten(other) == flatten(config)


def test_a_recorded_run_and_a_config_file_name_it(mine, tmp_path):
  agent, run_dir = mine(), str(tmp_path / 'run')
  config = _resolved('sebulba', agent=agent, colour='blue').config
  (tmp_path / 'run').mkdir()
  run_directory.write_record(
    run_dir, 'sebulba', {'agent': 'mine.py:Mine', 'colour': 'blue'}, flatten(config)
  )
  assert early.choice(['launch.py', f'--resume={run_dir}']) == ('sebulba', agent)
  assert early.choice(['launch.py', f'--config={run_dir}/config.json']) == ('sebulba', agent)
  module, record = registry.load('sebulba'), json.loads((tmp_path / 'run/config.json').read_text())
  assert agent_choice.recorded(module, record['config'], {}) == {'agent': agent}
  with pytest.raises(ValueError, match='--agent=ppo cannot change when a run is resumed'):
    agent_choice.recorded(module, record['config'], {'agent': 'ppo'})
  # A program that had no choice of agents when a run was recorded.
  assert agent_choice.recorded(registry.load('r2d2'), {}, {}) == {'agent': 'r2d2'}


def test_the_trace_looks_at_priorities_only_where_they_are_used():
  run = _resolved('sebulba')
  spec = run.module.environments.make_spec('catch')
  agent = run.module.make_agent(run.config)(spec.observations, spec.actions)
  tracing.trace(agent, spec, 'unrolls', 4)
  with pytest.raises(ValueError, match='update returned no priorities'):
    tracing.trace(agent, spec, 'unrolls', 4, prioritized=True)


@pytest.mark.slow
def test_its_options_are_flags_and_it_is_traced_before_anything_starts(mine, tmp_path):
  agent = mine()
  process = launch('--dry_run', f'--agent={agent}', '--colour=blue')
  assert process.returncode == 0, process.stderr
  assert '--colour' in launch(f'--agent={agent}', '--help').stdout
  process = launch(f'--agent={agent}', f'--run_dir={tmp_path / "run"}')  # Its policy asserts blue.
  assert process.returncode == 2 and process.stderr.count('\n') == 1
  assert process.stderr.startswith(f'error: --agent={agent}: trying it raised AssertionError')
  assert not (tmp_path / 'run').exists()


@pytest.mark.parametrize(
  'flags, words',
  [
    (['--agent=/nothing/mine.py:Mine'], ['/nothing/mine.py cannot be read: No such file']),
    (['--agent=/nothing/mine.py'], ['--agent=/nothing/mine.py does not say which function']),
    ([f'--agent={TEMPERED}:8'], ["has '8' after the name"]),
    (
      ['--launcher=k8s', '--image=x', '--output=y', f'--agent={TEMPERED}'],
      [f'--agent={TEMPERED} is on this machine', '--launcher=local'],
    ),
    (
      [f'--agent={TEMPERED}', '--env=gymnasium:Pendulum-v1'],
      ['has continuous actions', f'--agent={TEMPERED} takes one discrete action'],
    ),
  ],
)
def test_an_unusable_agent_is_rejected_without_a_trial(flags, words, capsys):
  assert run_main(*flags) == 2
  captured = capsys.readouterr()
  assert captured.err.startswith('error: ') and captured.err.count('\n') == 1
  for word in words:
    assert word in captured.err
