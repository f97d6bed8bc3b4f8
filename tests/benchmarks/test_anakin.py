"""The benchmark of Anakin, at its smallest."""

import json

import pytest

from tests.agents.subprocesses import run_python


@pytest.mark.nightly
def test_it_prints_a_table_and_writes_what_it_measured(tmp_path):
  flags = ('--env=catch', '--num_envs=8,16', '--seconds=0.1', f'--results={tmp_path}')
  lines = run_python('-m', 'benchmarks.anakin', *flags, JAX_PLATFORMS='cpu').splitlines()
  assert [line.split()[:2] for line in lines[2:4]] == [['catch', '8'], ['catch', '16']]
  record = json.loads((tmp_path / 'anakin.json').read_text())
  assert [r['num_envs'] for r in record['results']] == [8, 16]
  for result in record['results']:
    assert result['learning_steps_per_second'] > 0 and result['alone_steps_per_second'] > 0
  assert (tmp_path / 'anakin.png').read_bytes().startswith(b'\x89PNG')
