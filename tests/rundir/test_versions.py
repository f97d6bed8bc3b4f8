"""The versions that a run directory records."""

import importlib.metadata

from rundir import versions


def test_what_is_installed_is_recorded_and_what_was_not_recorded_has_not_changed(monkeypatch):
  def version(name):
    if name == 'pgx':
      raise importlib.metadata.PackageNotFoundError
    return '1.0'

  monkeypatch.setattr(importlib.metadata, 'version', version)
  monkeypatch.setattr(versions, 'code', lambda root: ('abc', True))
  found = versions.found()
  assert found['ale-py'] == found['jax'] == '1.0' and 'pgx' not in found
  assert found['launchpod'] == 'abc+'
  assert versions.changes({'jax': '1.0'}, found) == ''
  said = 'jax 1.0 (was 0.9), pgx none (was 2.0)'
  assert versions.changes({'pgx': '2.0', 'numpy': '1.0', 'jax': '0.9'}, found) == said


def test_without_git_no_commit_is_recorded(tmp_path, monkeypatch):
  assert versions.code(str(tmp_path)) == ('', None)
  monkeypatch.setenv('PATH', str(tmp_path))
  assert versions.code(versions._ROOT) == ('', None) and 'launchpod' not in versions.found()
