"""A gRPC server of a run while the environment names a proxy that does not answer."""

from launchers import placement
from launchers.placement import Resources
from tests.agents.subprocesses import run_python

_CALLS = """
import os
import sys

from nodes.unrolls.thin_reverb import reverb
from launchers import binding

(port,) = binding.free_ports(1)
tables = reverb.Server([reverb.Table.queue('unrolls', 4)], port)
assert list(reverb.Client(f'127.0.0.1:{port}').server_info(timeout=10)) == ['unrolls']
print('answered')
sys.stdout.flush()
os._exit(0)
"""


def test_calls_do_not_go_through_a_proxy_that_downloads_would_use():
  variables = placement.environment_variables(Resources())
  # All at once: gRPC falls back from one to the next.
  nowhere = dict.fromkeys(('http_proxy', 'https_proxy', 'grpc_proxy'), 'http://127.0.0.1:9')
  assert run_python('-c', _CALLS, **nowhere | variables).startswith('answered')
  assert not {'http_proxy', 'https_proxy', 'no_proxy'} & variables.keys()
