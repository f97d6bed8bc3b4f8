"""What is known of a user's own torso before a program starts."""

import subprocess

import pytest

from environments import user_file
from programs import agent_check, registry
from programs.options import configs
from programs.runs import Run
from tests.programs_under_test import ROOT, run_main

FOURIER = f'{ROOT}/examples/fourier.py:Fourier'
GOOD = """
import flax.linen as nn
import jax.numpy as jnp

class Mine(nn.Module):
  @nn.compact
  def __call__(self, x):
    x = x.reshape(x.shape[0], -1)
    return nn.relu(nn.Dense(3)(x))
"""


def _run(program, **given):
  module = registry.load(program)
  return Run(program, module, given, configs.make_config(module, given))


def _tried(run):
  """Tries a run's agent in this process; returns the warnings."""
  config = run.config
  return agent_check.trial(
    run.module.make_agent(config),
    run.module.environments,
    config,
    run.program if user_file.is_spec(run.program) else '',
    source=None,
  )


@pytest.mark.slow
@pytest.mark.parametrize(
  'program, given',
  [
    ('sebulba', {'core': 'lstm'}),
    ('sebulba', {'env': 'minatar:Breakout', 'frame_stack': 2}),
    ('sebulba', {'agent': 'ppo', 'separate_critic': True, 'normalize_observations': True}),
    ('impala', {}),
    ('r2d2', {}),
    ('qt_opt', {}),
    ('sac', {}),
    ('muzero', {}),
    ('anakin', {'agent': 'muzero'}),
    ('anakin', {}),
    ('gala', {}),
    ('evolution', {}),
    ('population', {}),
    (f'{ROOT}/examples/mine.py:make_program', {}),
  ],
)
def test_every_program_with_a_torso_takes_your_own(program, given):
  _tried(_run(program, torso=FOURIER, **given))


@pytest.mark.parametrize(
  'old, new, words',
  [
    ('class Mine', 'class Nine', ['defines no Mine; did you mean Nine?']),
    ('import flax', 'import nothing_like_it, flax', ['importing it raised ModuleNotFoundError']),
    ('nn.Dense(3)', 'nn.Dens(3)', ['trying it raised AttributeError', 'at line 9', 'nn.Dens(3)']),
    ('class Mine(nn.Module):', 'class Mine(nn.Module):\n  size: int', ['missing 1', "'size'"]),
    ('(nn.Module)', '', ['not a flax.linen.Module']),
    ('x.reshape(x.shape[0], -1)', 'x.astype(jnp.float32)', ['float32[1, 10, 3] for 1 row(s)']),
    ('(3)(x)', '(3)(x).reshape(1, -1)', ['float32[1, 9] for 3 row(s)', 'return float32[3, D]']),
    ('nn.Dense(3)', 'nn.Dense(3, dtype=jnp.float16)', ['float16[1, 3]']),
    ('nn.Dense(3)(x)', 'nn.BatchNorm(True)(x)', ['besides its parameters, batch_stats']),
    ('nn.Dense(3)(x)', 'nn.Dropout(0.5, deterministic=False)(x)', ['InvalidRngError']),
  ],
)
def test_a_mistake_in_a_torso_is_reported_in_one_sentence(tmp_path, old, new, words):
  assert old in GOOD
  path = tmp_path / 'mine.py'
  path.write_text(GOOD.replace(old, new))
  with pytest.raises(ValueError) as error:
    _tried(_run('sebulba', torso=f'{path}:Mine'))
  assert str(error.value).startswith(f'--torso={path}:Mine') and '\n' not in str(error.value)
  for word in words:
    assert word in str(error.value)


AGENT = """
from agents.vtrace.agent import VTrace

class Mine(VTrace):
  def act(self, *args):
    output = super().act(*args)
    pass  # act
    return output

  def update(self, state, unrolls, probabilities):
    output = super().update(state, unrolls, probabilities)
    pass  # update
    return output
"""
PROGRAM = """
import functools
from environments import user_file
from programs import sebulba

AGENT = user_file.named('agent.py:Mine', beside=__file__)
Config = sebulba.Config

def make_agent(config):
  return functools.partial(AGENT, config.agent)

def make_program(config):
  return sebulba.make_graph('own', config, make_agent(config))
"""
MISTAKE = 'unrolls.timestep.reward[:, 1:] - unrolls.timestep.discount'


@pytest.fixture
def own(tmp_path):
  """Writes a program whose agent is in the file beside it; returns its name."""

  def write(function='act', line='pass'):
    (tmp_path / 'agent.py').write_text(AGENT.replace(f'pass  # {function}', line))
    (tmp_path / 'own.py').write_text(PROGRAM)
    return f'{tmp_path}/own.py:make_program'

  return write


def test_an_agent_of_your_own_is_traced(own):
  _tried(_run(own(), core='lstm'))


@pytest.mark.parametrize(
  'function, line, words',
  [
    (
      'update',
      MISTAKE,
      ['for broadcasting: (16, 20), (16, 21)', 'at line 12 of {path}/agent.py: ', MISTAKE],
    ),
    ('act', 'output.action @ output.action.T[0]', ['at line 7 of {path}/agent.py: output.action']),
    ('act', 'output = output._replace(core_state=args[3])', ['act returned the core_state with']),
    (
      'act',
      'output = output._replace(action=output.action[None])',
      ['act returned actions (1, 3), which must be (3,)'],
    ),
    (
      'update',
      'output.metrics["reward"] = unrolls.timestep.reward',
      ['update returned the metric reward of shape (16, 21), not a scalar'],
    ),
    (
      'update',
      'output = output._replace(state=output.state._replace(learner_steps=0.5 + state[2]))',
      ['update returned the state with float32[] at .learner_steps, which must be int32[] as'],
    ),
  ],
)
def test_a_mistake_in_an_agent_is_reported_in_one_sentence(own, tmp_path, function, line, words):
  name = own(function, line)
  with pytest.raises(ValueError) as error:
    _tried(_run(name))
  said = str(error.value)
  assert said.startswith(f'--program={name}: trying its agent raised ') and '\n' not in said
  for word in words:
    assert word.format(path=tmp_path) in said


@pytest.mark.slow
def test_launch_traces_an_agent_of_your_own_before_anything_starts(own, tmp_path, capsys):
  name = own('update', MISTAKE)
  run_dir = tmp_path / 'run'
  for flags in (['--dry_run'], [f'--run_dir={run_dir}']):
    assert run_main(f'--program={name}', *flags) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith(f'error: --program={name}: trying its agent raised TypeError: ')
    assert captured.err.count('\n') == 1 and f'at line 12 of {tmp_path}/agent.py' in captured.err
    assert captured.out == '' and not run_dir.exists()


def test_an_agent_of_this_repository_with_its_own_torso_is_not_traced(monkeypatch):
  run = _run('muzero', env='cartpole')  # It tries the environment in a process.
  monkeypatch.setattr(subprocess, 'run', None)
  agent_check.check(run, None)


@pytest.mark.slow
def test_launch_tries_a_torso_in_a_process_of_its_own(tmp_path, capsys):
  path = tmp_path / 'mine.py'
  path.write_text(GOOD.replace('nn.relu(', 'nn.rely('))
  assert run_main('--dry_run', f'--torso={path}:Mine') == 2
  captured = capsys.readouterr()
  assert captured.err.startswith(f'error: --torso={path}:Mine: trying it') and captured.out == ''
  assert captured.err.count('\n') == 1 and 'nn.rely' in captured.err


@pytest.mark.parametrize(
  'flags, words',
  [
    (['--torso=/nothing/mine.py:Mine'], ['/nothing/mine.py cannot be read: No such file']),
    (['--torso=/nothing/mine.py'], ['--torso=/nothing/mine.py does not say which function']),
    ([f'--torso={FOURIER}:8'], ["has '8' after the name"]),
    (
      ['--program=intrinsic_rewards', f'--torso={FOURIER}'],
      ['--torso is not an option of this program'],
    ),
    (
      ['--program=muzero', '--model=conv', f'--torso={FOURIER}'],
      ['--torso has no effect with --model=conv'],
    ),
    (
      ['--launcher=k8s', '--image=x', '--output=y', f'--torso={FOURIER}'],
      [f'--torso={FOURIER} is on this machine', '--launcher=local'],
    ),
  ],
)
def test_an_unusable_torso_is_rejected_without_a_trial(flags, words, capsys, monkeypatch):
  monkeypatch.setattr(subprocess, 'run', None)
  assert run_main(*flags) == 2
  captured = capsys.readouterr()
  assert captured.err.startswith('error: ') and captured.err.count('\n') == 1
  for word in words:
    assert word in captured.err


LOSS = """
from agents.vtrace.agent import VTrace

class Mine(VTrace):
  def loss_of_output(self, output, rows):
    loss, metrics = super().loss_of_output(output, rows)
    return loss, metrics
"""


@pytest.mark.parametrize(
  'returned, said',
  [
    ('loss', 'loss_of_output returned float32[], which must be (loss, metrics)'),
    ('loss + rows.timestep.reward, metrics', 'loss float32[21, 16], which must be a single number'),
    ('None, metrics', 'returned the loss a NoneType, which must be a single number'),
  ],
)
def test_a_loss_that_is_none_is_named(tmp_path, returned, said):
  path = tmp_path / 'mine.py'
  path.write_text(LOSS.replace('return loss, metrics', f'return {returned}'))
  with pytest.raises(ValueError) as error:
    _tried(_run('sebulba', agent=f'{path}:Mine'))
  assert said in str(error.value) and '\n' not in str(error.value)


@pytest.mark.parametrize(
  'name, warns',
  [('loss_of_output', False), ('loss_of_ouput', True), ('smoothed_loss', False), ('_lost', False)],
)
def test_a_misspelt_method_is_a_warning(tmp_path, name, warns):
  path = tmp_path / 'mine.py'
  path.write_text(LOSS.replace('def loss_of_output', f'def {name}'))
  warnings = _tried(_run('sebulba', agent=f'{path}:Mine'))
  assert len(warnings) == warns
  if warns:
    assert 'Mine.loss_of_ouput overrides nothing' in warnings[0]
