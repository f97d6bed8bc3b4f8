"""A server in a process of its own: `python -m tests.courier.server_process PORT`."""

import os
import resource
import sys
import time

import courier


def main(port: int) -> None:
  """Serves until it is killed; prints its port first."""
  hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
  resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
  server = courier.Server(port=port or None)
  server.Bind('pid', os.getpid)
  server.Bind('add', lambda a, b: a + b)
  server.Bind('sleep', time.sleep)
  server.Start()
  print(server.port, flush=True)
  server.Join()


if __name__ == '__main__':
  main(int(sys.argv[1]))
