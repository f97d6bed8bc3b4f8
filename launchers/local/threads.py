"""Runs a graph as threads of this process, with Launchpad's own launcher local_mt."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable

import launchpad as lp

from launchers import certificate


def launch(program: lp.Program, started: Callable[[], None] = lambda: None) -> int:
  """Runs a program to completion; returns the exit code, 0 or 1.

  Args:
    program: the graph.
    started: called once the nodes have been started.
  """
  pem = certificate.in_memory(certificate.new())
  os.environ.update(certificate.variable(pem))
  try:
    manager = lp.launch(program, launch_type='local_mt')
    started()
    manager.wait()
    return 0
  except Exception:
    traceback.print_exc()
    return 1
  finally:
    del os.environ[certificate.VARIABLE]
    pem.close()
