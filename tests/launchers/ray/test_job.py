"""launch.py handed to a cluster with `ray job submit`."""

import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile

import pytest

from launchers import binding
from tests.waiting import DEADLINE, alive, wait_until

ROOT = pathlib.Path(__file__).parent.parent.parent.parent
RAY = f'{os.path.dirname(sys.executable)}/ray'

# Ray gives up if its dashboard, ten processes, has not started in 20 seconds.
pytestmark = [pytest.mark.cluster, pytest.mark.nightly]


@pytest.fixture
def dashboard():
  """The address of a head node's dashboard."""
  directory = tempfile.mkdtemp(prefix='r-', dir='/tmp')  # A socket's path has 107 bytes at most.
  port, dashboard_port = binding.free_ports(2)
  command = f"""
    {RAY} start --head --block --num-cpus=6 --node-ip-address=127.0.0.1 --port={port}
    --dashboard-host=127.0.0.1 --dashboard-port={dashboard_port} --temp-dir={directory}
  """.split()
  head = subprocess.Popen(command, env={**os.environ, 'RAY_USAGE_STATS_ENABLED': '0'})
  try:
    wait_until(lambda: _listens(dashboard_port), alive(head), DEADLINE, poll=0.1)
    yield f'http://127.0.0.1:{dashboard_port}'
  finally:
    head.terminate()
    head.wait(DEADLINE)
    shutil.rmtree(directory, ignore_errors=True)


def _listens(port):
  with socket.socket() as s:
    return s.connect_ex(('127.0.0.1', port)) == 0


def test_a_submitted_job_trains_and_leaves_its_run_directory(dashboard, tmp_path):
  code = tmp_path / 'code'
  for part in ('agents', 'environments', 'launchers', 'nodes', 'programs'):
    shutil.copytree(ROOT / part, code / part, ignore=shutil.ignore_patterns('__pycache__'))
  shutil.copy(ROOT / 'launch.py', code)
  command = f"""
    {RAY} job submit --address={dashboard} --working-dir={code} -- {sys.executable} launch.py
    --launcher=ray --ray_address=auto --run_dir={tmp_path}/run --num_steps=2000 --num_actors=2
    --envs_per_actor=8 --batch_size=4 --eval_episodes=10
  """.split()
  done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE)
  assert done.returncode == 0, done.stdout + done.stderr
  assert re.search(rf'\ndone: evaluator_return=.* run_dir={tmp_path}/run\n', done.stdout)
  assert (tmp_path / 'run' / 'params' / 'final.msgpack').exists()
