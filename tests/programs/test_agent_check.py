"""What is known of a user's own torso before a program starts."""

import subprocess

import pytest

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
  """Tries a run's agent in this process."""
  config = run.config
  agent_check.trial(
    run.module.make_agent(config),
    run.module.environments,
    config.env,
    config.env_options,
    config.torso,
    source=None,
  )


@pytest.mark.parametrize(
  'program, given',
  [
    ('sebulba', {'core': 'lstm'}),
    ('sebulba', {'env': 'minatar:Breakout', 'frame_stack': 2}),
    ('sebulba', {'agent': 'ppo', 'separate_critic': True, 'normalize_observations': True}),
    ('impala', {}),
    ('r2d2', {}),
    ('qt_opt', {}),
    ('muzero', {}),
    ('anakin', {'agent': 'muzero'}),
    ('anakin', {}),
    ('gala', {}),
    (f'{ROOT}/examples/mine.py:make_program', {}),
  ],
)
def test_every_program_with_a_torso_takes_your_own(program, given):
  _tried(_run(program, torso=FOURIER, **given))


@pytest.mark.parametrize(
  'old, new, words',
  [
    ('class Mine', 'class Nine', ['defines no function Mine; did you mean Nine?']),
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
