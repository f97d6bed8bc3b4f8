"""Runs a local run in its own network namespace, so that no other process can connect to its nodes.

Nodes refuse processes without the certificate of the run: see `launchers.certificate`. Other servers of
a run ask for none: JAX's collectives, and those that environments start. A Linux network
namespace with only a loopback interface can be reached only by the processes of the run.

Only a process without threads may enter a user namespace, and launch.py has threads once it has parsed
its flags. So it executes a script, which enters the namespace and executes launch.py again. It stays
one process, with the same id, terminal, working directory and parent.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping

from launchers import streams
from launchers.placement import Resources
from nodes.runtime import network_namespace

MODES = ('auto', 'require', 'no')
_SCRIPT = os.path.abspath(network_namespace.__file__)


def enter(mode: str, placement: Mapping[str, Resources]) -> None:
  """Moves this process into its own network namespace; returns inside it, or if no move is made.

  To move, the process executes its command again, so call this before writing or starting anything.
  If mode is 'auto', the process cannot move and a server lets strangers in, it prints a one-line warning
  to stderr.

  Args:
    mode: 'auto' moves if the system allows it and no node needs the network to find its devices;
      'require' always moves; 'no' never does.
    placement: resources of each group.

  Raises:
    ValueError: if mode is 'require' and the system does not allow it.
  """
  if mode == 'no' or os.environ.get(network_namespace.VARIABLE) == network_namespace.name():
    return
  stays = mode == 'auto' and any(r.accelerator_kind == 'tpu' for r in placement.values())
  obstacle = "a TPU's library asks the network about its machine" if stays else _obstacle()
  if not obstacle:
    sys.stdout.flush()
    command = [sys.executable, *sys.orig_argv[1:]]
    os.execv(sys.executable, [sys.executable, '-I', _SCRIPT, *command])
  if mode == 'require':
    raise ValueError(
      f'--isolate=require is not possible: {obstacle}; allow it, or set --isolate=no, with which nodes '
      'still refuse processes without the certificate of the run (see SECURITY.md).'
    )
  if exposed := _exposed(placement, namespaces=stays):
    streams.say(
      f'warning: the nodes are not isolated, because {obstacle}: {" and ".join(exposed)}; see '
      'SECURITY.md (--isolate=no: no warning).',
      sys.stderr,
    )


def _exposed(placement: Mapping[str, Resources], namespaces: bool) -> list[str]:
  """Returns which servers of a run outside a namespace let strangers in, in words.

  Args:
    placement: resources of each group.
    namespaces: whether Reverb has a namespace of its own.
  """
  found = [] if namespaces else ['other users of this machine can connect to Reverb']
  if any(resources.one_job for resources in placement.values()):
    found.append(
      "any process that can reach ports 1024-65535 of this machine can connect to JAX's collectives, so "
      'close them with a firewall'
    )
  return found


def _obstacle() -> str:
  """Tries to enter a namespace in another process; returns the obstacle, or ''."""
  tried = subprocess.run([sys.executable, '-I', _SCRIPT], capture_output=True, text=True)
  if tried.returncode == 0:
    return ''
  why = tried.stderr.strip() or f'exit code {tried.returncode}'
  return f'this system refuses a network namespace ({why})'
