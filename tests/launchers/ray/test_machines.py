"""What the launcher sends to machines, which may lack all of our code."""

import subprocess
import sys

from ray import cloudpickle

from launchers.ray import machines, supervisor
from nodes.runtime import listening
from tests.waiting import DEADLINE

_ON_A_MACHINE = """
import importlib.util, sys
assert not importlib.util.find_spec('launchers') and not importlib.util.find_spec('nodes')
from ray import cloudpickle
bind_ports, actor = cloudpickle.load(sys.stdin.buffer)
print(actor.__name__, *(s.getsockname()[1] for s in bind_ports(2)))
"""


def test_a_machine_without_the_code_finds_ports(tmp_path):
  try:
    for module in machines.BY_VALUE:
      cloudpickle.register_pickle_by_value(module)
    sent = cloudpickle.dumps((listening.bind_ports, supervisor.Supervisor))
  finally:
    for module in machines.BY_VALUE:
      cloudpickle.unregister_pickle_by_value(module)
  command = [sys.executable, '-I', '-c', _ON_A_MACHINE]
  found = subprocess.run(command, input=sent, cwd=tmp_path, capture_output=True, timeout=DEADLINE)
  assert found.returncode == 0, found.stderr
  name, *ports = found.stdout.decode().split()
  assert name == 'Supervisor' and len(set(ports)) == 2
