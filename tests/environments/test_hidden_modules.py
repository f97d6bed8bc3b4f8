"""Modules of a user with the names of packages of ours."""

import pytest

from tests.programs_under_test import run_main

FACTORY = """
from environments import catch

def make(task, num_envs, seed):
  return catch.make(task, num_envs, seed)
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
  """A directory with a user's file, and modules with names of ours beside it."""
  monkeypatch.delenv('PYTHONPATH', raising=False)
  for name in ('environments', 'tests'):
    (tmp_path / name).mkdir()
    (tmp_path / name / 'mine.py').write_text('')
  (tmp_path / 'nodes.py').write_text('')
  (tmp_path / 'mine.py').write_text(FACTORY)
  return tmp_path


def test_modules_that_a_package_of_ours_hides_are_named(project, monkeypatch, capsys):
  assert run_main('--dry_run', f'--env={project}/mine.py:make') == 0
  assert 'warning: environments, nodes, beside mine.py, cannot be im' in capsys.readouterr().err
  assert run_main('--dry_run') == 0
  assert 'warning' not in capsys.readouterr().err
  monkeypatch.setenv('PYTHONPATH', str(project))
  assert run_main('--dry_run') == 0
  assert f'environments, nodes, in {project} of PYTHONPATH, cannot' in capsys.readouterr().err


@pytest.mark.parametrize('module', ['environments.mine', 'tests.mine'])
def test_an_import_that_fails_because_a_module_is_hidden_says_so(
  project, monkeypatch, capsys, module
):
  (project / 'broken.py').write_text(f'import {module}')
  reason = f'; {module.partition(".")[0]}, {{}}, is hidden by the package of Launchpod'
  assert run_main('--dry_run', f'--env={project}/broken.py:make') == 2
  assert reason.format('beside broken.py') in capsys.readouterr().err
  monkeypatch.setenv('PYTHONPATH', str(project))
  monkeypatch.syspath_prepend(project)
  assert run_main('--dry_run', '--env=gymnasium:broken:Broken-v0') == 2
  assert reason.format(f'in {project} of PYTHONPATH') in capsys.readouterr().err
