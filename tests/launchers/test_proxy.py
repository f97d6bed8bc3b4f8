"""Calls by gRPC while the environment names a proxy that does not answer."""

from launchers import placement
from launchers.placement import Resources
from tests.agents.subprocesses import run_python

_CALLS = """
import os
import sys
from concurrent import futures

import grpc

from launchers import binding

(port,) = binding.free_ports(1)
server = grpc.server(futures.ThreadPoolExecutor(1))
hello = grpc.unary_unary_rpc_method_handler(lambda request, context: b'hello ' + request)
server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler('test', {'hello': hello})])
server.add_insecure_port(f'127.0.0.1:{port}')
server.start()
call = grpc.insecure_channel(f'127.0.0.1:{port}').unary_unary('/test/hello')
assert call(b'you', timeout=600, wait_for_ready=True) == b'hello you'
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
