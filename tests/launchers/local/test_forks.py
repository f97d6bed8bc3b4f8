"""The processes that fork the nodes of a local run."""

import io
import json
import os
import socket
import subprocess
import sys

import launchpad as lp
import psutil
import pytest

from launchers.local import fork_server, forks, local_mp
from launchers.placement import Resources
from programs import registry
from programs.options import configs
from tests.launchers import nodes
from tests.launchers.contract import RESTARTED

_IMPORT = """
import importlib, json, os, sys
for module in sys.argv[1:]:
  importlib.import_module(module)
print(json.dumps(['jax' in sys.modules, len(os.listdir('/proc/self/task'))]))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
  'modules, jax', [(fork_server.PLAIN_NODES, False), (fork_server.JAX_NODES, True)]
)
def test_the_imports_of_nodes_start_no_thread_and_load_jax_only_where_it_is_needed(modules, jax):
  command = [sys.executable, '-c', _IMPORT, *fork_server.ALL_NODES, *modules]
  environment = os.environ | {'OMP_NUM_THREADS': '1', 'OPENBLAS_NUM_THREADS': '1'}
  done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
  assert json.loads(done.stdout) == [jax, 1]


def test_the_nodes_of_every_program_are_known():
  unknown = {}
  for name in registry.PROGRAMS:
    module = registry.load(name)
    program = module.make_program(configs.resolve(module, {}))
    for label, group in program.groups.items():
      found = local_mp.modules(group[0])
      if not found or not {*found} <= {*fork_server.PLAIN_NODES, *fork_server.JAX_NODES}:
        unknown[name, label] = found
  assert unknown == {}


def _launch(program, run_dir, placement):
  out = io.StringIO()
  where = {label: Resources() for label in program.groups} | placement
  code = local_mp.launch(program, where, str(run_dir), out=out)
  assert code == 0, out.getvalue()
  return out.getvalue()


@pytest.mark.slow
def test_forks_have_variables_and_random_numbers_of_their_own(tmp_path):
  program = lp.Program('test')
  with program.group('fork'):
    for i in range(2):
      program.add_node(lp.PyClassNode(nodes.Describer, str(tmp_path / f'fork-{i}')))
  executed = lp.PyClassNode(nodes.Describer, str(tmp_path / 'executed'))
  program.add_node(executed, label='executed')
  placement = {
    'fork': Resources(cpu_env={'NPROC': '1'}),
    'executed': Resources(env={'NPROC': '2', 'LIBRARY_READS_THIS': 'yes'}),
  }
  _launch(program, tmp_path, placement)
  one, other, new = (
    json.loads((tmp_path / name).read_text()) for name in ('fork-0', 'fork-1', 'executed')
  )
  assert [d['variables'] for d in (one, other, new)] == [
    {'NPROC': '1'},
    {'NPROC': '1'},
    {'NPROC': '2', 'LIBRARY_READS_THIS': 'yes'},
  ]
  # A library may have read the other variable when it was imported.
  assert [d['at_start'] for d in (one, other, new)] == [{}, {}, new['variables']]
  assert len({number for d in (one, other, new) for number in d['random']}) == 6
  for i, described in enumerate((one, other)):
    assert described['command'][-1] == str(tmp_path / 'nodes' / f'fork-{i}.pkl')
    assert described['command'][:-2] == new['command'][:-2]


@pytest.mark.slow
def test_nodes_whose_fork_server_is_killed_are_restarted_by_another_one(tmp_path):
  pid, again = str(tmp_path / 'pid'), str(tmp_path / 'again')
  program = lp.Program('test')
  echo = program.add_node(lp.CourierNode(nodes.EchoWithPid, pid), label='echo')
  program.add_node(lp.PyClassNode(nodes.ParentKiller, echo, again), label='killer')
  output = _launch(program, tmp_path, {'echo': RESTARTED, 'killer': RESTARTED})
  before, after = map(int, (tmp_path / 'again').read_text().split())
  assert before != after and not psutil.pid_exists(before)
  for name in ('echo', 'killer'):
    assert f'node {name}/0 was killed by SIGKILL; restarting' in output


def test_a_server_without_descriptors_refuses_and_goes_on():
  server = forks.ForkServer(isolate=False)
  try:
    server.make_socket(socket.AF_INET).close()
    (process,) = [
      child
      for child in psutil.Process().children()
      if fork_server.__name__ in ' '.join(child.cmdline())
    ]
    soft, hard = process.rlimit(psutil.RLIMIT_NOFILE)
    assert soft == min(hard, 1 << 16)
    process.rlimit(psutil.RLIMIT_NOFILE, (1, hard))
    with pytest.raises(OSError, match='open files'):
      server.make_socket(socket.AF_INET)
    process.rlimit(psutil.RLIMIT_NOFILE, (soft, hard))
    server.make_socket(socket.AF_INET).close()
  finally:
    server.close()
