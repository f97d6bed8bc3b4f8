"""--config: flags from a file, or those of an earlier run."""

import json
import re

import pytest

from agents.options import flatten, replace
from programs import registry, runs
from programs.options import configs
from programs.options import flags as config_flags
from rundir import run_directory
from tests.programs_under_test import ROOT, launch, run_main

FILE = """
program: r2d2
num_actors: 5
num_steps: 200_000
mlp_sizes: [32, 16]
learning_rate: 1e-2
one_core: false
env_options: {rows: 6}
node_timeout: 7
"""
GIVEN = {'num_steps': 50_000, 'mlp_sizes': ['8', '4'], 'audit': True, 'learning_rate': 0.002}


def _recorded(path, **given):
  """Writes config.json of a run of Sebulba with these flags; returns its path and its config."""
  config = configs.make_config(registry.load('sebulba'), given)
  config = replace(config, run_dir=str(path))
  run_directory.write_record(str(path), 'sebulba', given | {'run_dir': str(path)}, flatten(config))
  return path / 'config.json', config


def test_a_file_sets_any_flag_and_the_command_line_wins(tmp_path, capsys):
  path = tmp_path / 'mine.yaml'
  path.write_text(FILE)
  assert run_main('--dry_run', f'--config={path}', '--num_actors=3') == 0
  assert re.search(r'program r2d2\n(.*\n)+ +actor +3 x PyClassNode', capsys.readouterr().out)
  run = runs.new_run('r2d2')
  assert run.given == {
    'num_actors': 3,
    'num_steps': 200_000,
    'mlp_sizes': ['32', '16'],
    'learning_rate': 0.01,
    'one_core': False,
    'env_options': 'rows=6',
  }
  assert (run.config.agent.mlp_sizes, run.config.run.env_options) == ((32, 16), 'rows=6')


@pytest.mark.parametrize(
  'text, words',
  [
    ('num_stepz: 3', ["there is no option 'num_stepz'; did you mean num_steps?"]),
    ('config: other.yaml', ["there is no option 'config'"]),
    ('num_steps: many', ["num_steps cannot be 'many': invalid literal"]),
    ('seed: {a: 1}', ["seed cannot be 'a=1'"]),
    ('launcher: slum', ["launcher cannot be 'slum'", 'slurm']),
    ('isolate: no', ['isolate is False; put a text such as "no" in quotes']),
    ('num_steps:', ['num_steps has no value']),
    ('- num_steps', ['must map names to values']),
    ('a: [', ['is neither YAML nor JSON', 'line 1']),
    ('[' * 5000, ['is nested too deeply']),
    ('batch_size: 5\nlearner_devices: [0, 1]', ['--batch_size=5', '--learner_devices']),
    (None, ['cannot be read: No such file']),
  ],
)
def test_a_mistake_in_a_file_is_reported_in_one_sentence(tmp_path, text, words, capsys):
  path = tmp_path / 'mine.yaml'
  if text is not None:
    path.write_text(text)
  assert run_main('--dry_run', f'--config={path}') == 2
  captured = capsys.readouterr()
  assert captured.err.startswith('error: --') and captured.err.count('\n') == 1
  for word in (str(path) if 'batch_size' not in (text or '') else '', *words):
    assert word in captured.err


@pytest.mark.slow
def test_a_file_may_be_json_and_name_your_own_program_and_agent(tmp_path):
  path = tmp_path / 'mine.json'
  program = f'{ROOT}/examples/mine.py:make_program'
  agent = f'{ROOT}/examples/tempered.py:Tempered'
  path.write_text(json.dumps({'program': program, 'hottest': 3.5, 'agent': agent}))
  process = launch('--config', str(path), '--dry_run', '--num_actors=4')
  assert process.returncode == 0, process.stderr
  assert 'CourierNode(ActionHistogram)' in process.stdout
  assert re.search(r'actor +4 x', process.stdout)
  path.write_text(json.dumps({'program': program, 'hottestt': 3.5, 'agent': agent}))
  process = launch(f'--config={path}', '--dry_run')
  assert (process.returncode, process.stdout) == (2, '')
  assert "no option 'hottestt'; did you mean hottest?" in process.stderr


def test_the_record_of_a_run_repeats_its_flags_in_a_new_directory(tmp_path, monkeypatch, capsys):
  (tmp_path / 'corridor.py').write_text((ROOT / 'examples' / 'corridor.py').read_text())
  monkeypatch.chdir(tmp_path)
  path, recorded = _recorded(tmp_path, env='corridor.py:make', **GIVEN)
  monkeypatch.chdir('/')  # From where the file is not.
  assert run_main('--dry_run', f'--config={path}') == 0
  assert f'--config={path}' not in capsys.readouterr().err
  assert config_flags.given() == {**GIVEN, 'env': f'{tmp_path}/corridor.py:make'}
  assert replace(runs.new_run('sebulba').config, run_dir=str(tmp_path)) == recorded


def test_flags_follow_what_is_changed_in_a_repeated_run(tmp_path):
  path, recorded = _recorded(tmp_path, num_steps=50_000)
  assert run_main('--dry_run', f'--config={path}', '--num_steps=100000') == 0
  config = runs.new_run('sebulba').config
  assert (recorded.evaluation.eval_period, config.evaluation.eval_period) == (2500, 5000)


def test_flags_with_a_changed_meaning_get_a_warning(tmp_path, capsys):
  path, _ = _recorded(tmp_path, num_steps=50_000)
  record = json.loads(path.read_text())
  record['config'] |= {'learning_rate': 0.5, 'mlp_sizes': [1, 2], 'cpu_cores': 1000}
  path.write_text(json.dumps(record))
  assert run_main('--dry_run', f'--config={path}') == 0
  (warning,) = (line for line in capsys.readouterr().err.splitlines() if '--config' in line)
  assert '--mlp_sizes=128,64 (was 1,2), --learning_rate=0.0006 (was 0.5) in this' in warning
  # With other flags it is another run.
  assert run_main('--dry_run', f'--config={path}', '--seed=3') == 0
  assert '--config' not in capsys.readouterr().err


def test_a_repeated_run_with_another_environment_has_the_options_that_were_given(tmp_path):
  given = {'env': 'atari:Pong', 'agent': 'ppo', 'env_options': 'sticky_actions=0'}
  path, recorded = _recorded(tmp_path, **given)
  assert 'screen=42' in recorded.run.env_options
  assert run_main('--dry_run', f'--config={path}', '--env=atari:Breakout') == 0
  assert runs.new_run('sebulba').config.run.env_options == 'sticky_actions=0'


def test_a_flagfile_may_name_the_file(tmp_path, capsys):
  (tmp_path / 'mine.yaml').write_text('program: r2d2')
  (tmp_path / 'flags').write_text(f'--config={tmp_path}/mine.yaml')
  assert run_main(f'--flagfile={tmp_path}/flags', '--dry_run') == 0
  assert 'program r2d2\n' in capsys.readouterr().out
