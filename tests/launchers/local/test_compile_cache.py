"""The cache of compiled functions that runs share."""

import pytest

from launchers.local import compile_cache


def test_runs_of_one_processor_share_a_directory_of_limited_size(tmp_path, monkeypatch):
  home = {'XDG_CACHE_HOME': str(tmp_path)}
  first = compile_cache.variables(home)
  assert compile_cache.variables(home) == first
  directory = first['JAX_COMPILATION_CACHE_DIR']
  assert list(tmp_path.glob('launchpod/*')) == [tmp_path / 'launchpod' / directory.split('/')[-1]]
  assert int(first['JAX_COMPILATION_CACHE_MAX_SIZE']) > 1e8

  other = tmp_path / 'cpuinfo'
  other.write_text('flags : fpu avx512f\n')
  monkeypatch.setattr(compile_cache, '_PROCESSOR', str(other))
  assert compile_cache.variables(home)['JAX_COMPILATION_CACHE_DIR'] != directory


@pytest.mark.parametrize(
  'environment',
  [
    {'JAX_COMPILATION_CACHE_DIR': '/mine'},
    {'JAX_ENABLE_COMPILATION_CACHE': 'false'},
    {'XDG_CACHE_HOME': '/dev/null/nothing'},
  ],
)
def test_the_users_own_choice_and_an_unusable_directory_are_left_alone(environment):
  assert compile_cache.variables(environment) == {}
