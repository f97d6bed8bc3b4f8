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
  assert found['launchpod'] == 'abc+' and found['dm-launchpad'] and found['dm-reverb']
  assert versions.changes({'jax': '1.0'}, found) == ''
  said = 'jax 1.0 (was 0.9), pgx none (was 2.0)'
  assert versions.changes({'pgx': '2.0', 'numpy': '1.0', 'jax': '0.9'}, found) == said


def test_without_git_no_commit_is_recorded(tmp_path, monkeypatch):
  assert versions.code(str(tmp_path)) == ('', None)
  monkeypatch.setenv('PATH', str(tmp_path))
  assert versions.code(versions._ROOT) == ('', None) and 'launchpod' not in versions.found()


def test_packages_that_another_installer_has_replaced_are_named(tmp_path, monkeypatch):
  assert versions.unlike_the_lock(str(tmp_path / 'none.txt')) == ''
  lock = tmp_path / 'requirements.txt'
  lock.write_text('jax==1.0 \\\n    --hash=sha256:0\nprotobuf==3.19.6\nunknown==1.0\nmctx==7\n')
  installed = {'jax': '1.0', 'protobuf': '7.36.2', 'unknown': '2.0'}

  def version(name):
    if name not in installed:
      raise importlib.metadata.PackageNotFoundError
    return installed[name]

  monkeypatch.setattr(importlib.metadata, 'version', version)
  assert versions.unlike_the_lock(str(lock)).startswith(
    'protobuf 7.36.2 (not 3.19.6): these are not the versions of requirements.txt'
  )
  installed['protobuf'] = '3.19.6'
  assert versions.unlike_the_lock(str(lock)) == ''


def test_here_are_the_locked_packages():
  assert versions.unlike_the_lock() == ''
