"""Runs a graph with Launchpad's own launchers: local_mt, test_mt and test_mp."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Mapping

import launchpad as lp
from absl.testing import absltest
from launchpad.nodes.python.local_multi_processing import PythonProcess

from launchers import binding, certificate
from launchers.placement import Resources, environment_variables


class _Case(absltest.TestCase):
  """The test case that Launchpad's test launch types require."""

  def runTest(self) -> None:
    """Never called."""


def launch(
  program: lp.Program,
  launch_type: str,
  placement: Mapping[str, Resources],
  started: Callable[[], None] = lambda: None,
) -> int:
  """Runs a program to completion.

  Args:
    program: the graph.
    launch_type: 'local_mt', 'test_mt' or 'test_mp'. The first two run the nodes as threads of this
      process, so placement has no effect.
    placement: resources of each group.
    started: called once the nodes have been started.

  Returns:
    The exit code, 0 or 1.
  """
  case = _Case()
  # Launchpad's entry of a process imports `courier` before anything could add our directory.
  path = {'PYTHONPATH': binding.python_path()}
  resources = {
    label: PythonProcess(env=environment_variables(placement[label]) | path)
    for label in program.groups
  }
  # The nodes are threads or children of this process.
  pem = certificate.in_memory(certificate.new())
  os.environ.update(certificate.variable(pem))
  try:
    manager = lp.launch(
      program,
      launch_type=launch_type,
      local_resources=resources if launch_type == 'test_mp' else None,
      test_case=case if launch_type.startswith('test') else None,
    )
    started()
    manager.wait()
    return 0
  except Exception:
    traceback.print_exc()
    return 1
  finally:
    del os.environ[certificate.VARIABLE]
    pem.close()
