"""A cluster that lets nobody in without its token."""

import os
import shutil
import socket
import subprocess
import sys
import tempfile

import pytest

from launchers import binding
from tests.launchers.ray.test_job import RAY, ROOT
from tests.waiting import DEADLINE, alive, wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.nightly]
_DRIVER = """
import os, sys
from launchers.placement import Resources
from launchers.ray import cluster
from tests.launchers import nodes
address, run_dir = sys.argv[1:]
paths = [os.path.join(run_dir, name) for name in ('answer', 'environment')]
program = nodes.program(
  (nodes.Caller, True, paths[0]), (nodes.Stopper, False, os.pathsep.join(paths)),
  (nodes.Environment, False, paths[1])
)
where = {label: Resources(cpus=0) for label in program.groups}
try:
  sys.exit(cluster.launch(program, where, run_dir, address, timeout=500))
except ValueError as error:
  sys.exit(str(error))
"""


def test_a_program_uses_the_token_of_its_user_and_is_refused_without(tmp_path):
  directory = tempfile.mkdtemp(prefix='r-', dir='/tmp')  # A socket's path has 107 bytes at most.
  (port,) = binding.free_ports(1)
  address, token = f'127.0.0.1:{port}', '5' * 64
  home = tmp_path / 'home'
  (home / '.ray').mkdir(parents=True)
  (home / '.ray' / 'auth_token').write_text(token)
  without = {name: value for name, value in os.environ.items() if not name.startswith('RAY_')}
  without['RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER'] = '0'  # The loopback address is the machine's own.
  environment = {**without, 'HOME': str(home), 'RAY_USAGE_STATS_ENABLED': '0'}
  command = f"""
    {RAY} start --head --block --num-cpus=6 --node-ip-address=127.0.0.1 --port={port}
    --include-dashboard=false --temp-dir={directory}
  """.split()
  head = subprocess.Popen(command, env=environment)

  def launched(**variables):
    return subprocess.run(
      [sys.executable, '-c', _DRIVER, address, str(tmp_path)],
      cwd=ROOT,
      env=variables,
      capture_output=True,
      text=True,
      timeout=DEADLINE,
    )

  def listens():
    with socket.socket() as s:
      return s.connect_ex(('127.0.0.1', port)) == 0

  try:
    wait_until(listens, alive(head), DEADLINE, poll=0.1)
    done = launched(**environment)
    assert done.returncode == 0, done.stderr
    assert 'oken' not in done.stdout + done.stderr
    # Nodes are no part of Ray, so they do not get it.
    assert token not in (tmp_path / 'environment').read_text()
    refused = launched(**environment | {'HOME': str(tmp_path)})
    assert refused.returncode == 1
    said = refused.stderr.splitlines()[-1]
    assert said.startswith(f'--ray_address={address}: no Ray cluster') and 'auth_token' in said
  finally:
    head.terminate()
    head.wait(DEADLINE)
    shutil.rmtree(directory, ignore_errors=True)
