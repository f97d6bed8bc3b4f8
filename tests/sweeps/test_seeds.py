"""launch.py --seeds: the same program once for each seed."""

import re

import pytest

from rundir import sweep_directory
from tests.programs_under_test import run_main


def test_a_program_is_run_once_per_seed_and_the_same_command_continues(
  tmp_path, quick_launch, capsys
):
  config = tmp_path / 'mine.yaml'
  config.write_text('program: anakin\nseed: 8\nlearning_rate: 0.25\nmlp_sizes: [8, 4]\n')
  flags = (f'--config={config}', '--num_steps=500', f'--run_dir={tmp_path / "out"}')
  assert run_main(*flags, '--seeds=2') == 0
  lines = capsys.readouterr().out.splitlines()
  assert lines[0].startswith('2 seeds, ') and lines[0].endswith(str(tmp_path / 'out'))
  assert re.fullmatch(r'\| 0.735 \(0.73 to 0.74\) \| 2 of 2 \| \S+ \|', lines[-2])
  assert lines[-1] == f'wrote {tmp_path}/out/table.md'
  record = sweep_directory.read(str(tmp_path / 'out'))
  assert record.flags == {
    'program': 'anakin',
    'learning_rate': '0.25',
    'mlp_sizes': '8,4',
    'num_steps': '500',
    'isolate': 'no',
  }
  runs = sweep_directory.runs(str(tmp_path / 'out'))
  assert runs == [str(tmp_path / 'out' / f'seed_{seed}') for seed in (1, 2)]
  assert (tmp_path / 'out' / 'table.md').read_text().startswith('# anakin on catch\n')
  (tmp_path / 'out' / '.lock').unlink()  # This process holds it.
  assert run_main(*flags, '--seeds=1,2,9') == 0
  lines = capsys.readouterr().out.splitlines()
  assert [line.split(':')[0] for line in lines if ': runs' in line] == ['seed 9']


def test_a_dry_run_starts_nothing(tmp_path, capsys):
  assert run_main('--dry_run', '--seeds=3', f'--run_dir={tmp_path / "out"}') == 0
  assert capsys.readouterr().out.startswith('3 seeds, ')
  assert not (tmp_path / 'out').exists()
  (tmp_path / 'notes.txt').touch()
  assert run_main('--dry_run', '--seeds=3', f'--run_dir={tmp_path}') == 2
  assert f'error: {tmp_path} is not empty, and no sweep' in capsys.readouterr().err


@pytest.mark.parametrize('parameter', ['', 'seed=1'])
def test_your_own_launchpad_program_is_not_for_several_seeds(tmp_path, parameter, capsys):
  (tmp_path / 'mine.py').write_text(f'def make_program({parameter}): pass')
  assert run_main(f'--program={tmp_path}/mine.py:make_program', '--seeds=2') == 2
  error = capsys.readouterr().err
  assert error.startswith('error: --seeds is for programs that learn') and error.count('\n') == 1


@pytest.mark.parametrize(
  'flags, said',
  [
    (['--seeds=0'], '--seeds=0 must be a number'),
    (['--seeds=2', '--seed=1'], '--seed is for a single run; leave it out, or leave --seeds out'),
    (['--seeds=2', '--resume=x'], '--resume is for a single run'),
    (['--seeds=2', '--web'], '--web is for a single run'),
    (['--seeds=2', '--graph=x.svg'], '--graph is for a single run'),
    (['--seeds=2', '--launcher=ray'], '--launcher=ray: a sweep runs its programs on this machine'),
    (['--seeds=2', '--env=katch'], 'did you mean catch?'),
    (['--seeds=2', '--eval_envs=0'], '--seeds=2: metric: --eval_envs=0 leaves no evaluator'),
  ],
)
def test_flags_that_do_not_go_with_several_seeds_are_rejected(tmp_path, flags, said, capsys):
  assert run_main(f'--run_dir={tmp_path / "out"}', *flags) == 2
  error = capsys.readouterr().err
  assert error.startswith('error: ') and said in error and error.count('\n') == 1
  assert not (tmp_path / 'out').exists()
