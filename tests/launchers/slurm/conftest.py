"""A Slurm cluster for the tests of a module."""

import sys
import tempfile

import pytest

from tests.launchers.slurm import small_cluster
from tests.waiting import wait_until


@pytest.fixture(scope='module')
def shared_cluster():
  if missing := small_cluster.missing():
    pytest.skip(f'a Slurm cluster needs {missing}')
  # A socket's path has 107 bytes at most.
  with tempfile.TemporaryDirectory(prefix='slurm-', dir='/tmp') as directory:
    cluster = small_cluster.SlurmCluster(directory)
    try:
      with pytest.MonkeyPatch.context() as environment:
        environment.setenv('SLURM_CONF', str(cluster.config))
        yield cluster
    finally:
      cluster.close()


@pytest.fixture
def cluster(shared_cluster):
  """The cluster, which no test leaves with a job or a process of a node."""
  yield shared_cluster
  shared_cluster.wait_until_idle()
  for host in small_cluster.HOSTS:  # After the loss of a host Slurm waits for none of them.
    wait_until(lambda host=host: not shared_cluster.processes(host, sys.executable))
