"""Replicas on a Ray cluster of two hosts, which are network namespaces of this machine."""

import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile

import psutil
import pytest

from tests.launchers import hosts, replicas
from tests.waiting import DEADLINE, alive, wait_until

ROOT = pathlib.Path(__file__).parent.parent.parent.parent
NAMES = ('r1', 'r2')
PORT = 6379
pytestmark = [pytest.mark.cluster, pytest.mark.nightly]


@pytest.fixture
def cluster():
  """Two hosts, each with room for one replica; the first has the head."""
  if missing := hosts.missing():
    pytest.skip(f'hosts need {missing}')
  with tempfile.TemporaryDirectory(prefix='r-', dir='/tmp') as directory:  # Of sockets: short.
    cluster = hosts.Hosts(directory, NAMES, 'here')
    try:
      head = cluster.address_of('r1')
      of_head = f'--head --port={PORT} --temp-dir={directory} --include-dashboard=false'
      for name, of_host in (('r1', of_head), ('r2', f'--address={head}:{PORT}')):
        options = f'--node-ip-address={cluster.address_of(name)} --num-cpus=8 --block'
        ray = f'{sys.prefix}/bin/ray start {options} --resources=\'{{"seat": 1}}\''
        environment = {**os.environ, 'RAY_USAGE_STATS_ENABLED': '0'}
        cluster.start(name, cluster.on(name, f'exec {ray} {of_host}'), env=environment)
        wait_until(lambda: _listens(head), alive(cluster.daemons['r1']))
      yield cluster
    finally:
      cluster.close()


def _listens(address):
  with socket.socket() as probe:
    return probe.connect_ex((address, PORT)) == 0


def _runs_the_first(pid):
  """Returns whether a process is the node of the first replica."""
  try:
    return any('inference_learner-0.pkl' in word for word in psutil.Process(pid).cmdline())
  except psutil.NoSuchProcess:
    return False


def test_replicas_on_two_hosts_restart_together_and_train_to_their_end(cluster, tmp_path):
  run_dir, output, placement = tmp_path / 'run', tmp_path / 'output', tmp_path / 'placement.yaml'
  placement.write_text('inference_learner: {resources: {seat: 1}}\n')
  address = f'{cluster.address_of("r1")}:{PORT}'
  flags = ('--launcher=ray', f'--ray_address={address}', '--ray_timeout=300')
  flags += (f'--placement={placement}', f'--run_dir={run_dir}', *replicas.FLAGS)
  command = f'cd {ROOT}; exec {sys.executable} launch.py {" ".join(flags)}'
  with open(output, 'w') as out:
    launcher = subprocess.Popen(
      cluster.on('r1', command), stdin=subprocess.DEVNULL, stdout=out, stderr=out
    )
  try:
    wait_until(lambda: replicas.learn(run_dir), alive(launcher, output.read_text), poll=0.05)
    places = json.loads((run_dir / 'nodes.json').read_text())
    where = {places[f'inference_learner/{i}']['ip']: i for i in range(2)}
    assert where.keys() == {cluster.address_of(name) for name in NAMES}
    host = NAMES[list(map(cluster.address_of, NAMES)).index(places['inference_learner/0']['ip'])]
    [victim] = [pid for pid in cluster.processes(host, sys.executable) if _runs_the_first(pid)]
    os.kill(victim, signal.SIGKILL)  # It has the coordinator.
    launcher.wait(timeout=DEADLINE)
  finally:
    launcher.kill()
    launcher.wait()
  replicas.check_ended(run_dir, launcher.returncode, output.read_text())
