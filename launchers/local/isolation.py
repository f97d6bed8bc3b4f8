"""Gives a local run its own network namespace, so that no other process can connect to its nodes.

Nodes refuse processes without the certificate of the run: see `launchers.certificate`. Other servers of
a run ask for none: JAX's collectives, and those that environments start. A Linux network
namespace with only a loopback interface can be reached only by the processes of the run. The process
that starts the nodes enters it, and the launcher stays outside.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping

from launchers import streams
from launchers.local import forks
from launchers.placement import Resources
from nodes.runtime import network_namespace

MODES = ('auto', 'require', 'no')


def fork_server(mode: str, placement: Mapping[str, Resources]) -> forks.ForkServer:
  """Returns the process that starts the nodes of a run, in a network namespace of its own if it may.

  If mode is 'auto', there is none and a server lets strangers in, a one-line warning is printed to
  stderr.

  Args:
    mode: 'auto' isolates if the system allows it and no node needs the network to find its devices;
      'require' always does; 'no' never does.
    placement: resources of each group.

  Raises:
    ValueError: if mode is 'require' and the system does not allow it.
  """
  stays = mode == 'auto' and any(r.accelerator_kind == 'tpu' for r in placement.values())
  server = forks.take(mode != 'no' and not stays)
  if mode == 'require' and server.obstacle:
    server.close()
    raise ValueError(
      f'--isolate=require is not possible: {_refused(server.obstacle)}; allow it, or set --isolate=no, '
      'with which nodes still refuse processes without the certificate of the run (see SECURITY.md).'
    )
  if stays:
    _warn(placement, "a TPU's library asks the network about its machine", namespaces=True)
  elif server.obstacle:
    _warn(placement, _refused(server.obstacle), namespaces=False)
  return server


def warn_of_threads(mode: str, placement: Mapping[str, Resources]) -> None:
  """Prints the warning of `fork_server` for nodes that are threads of this process.

  They have no namespace. Reverb, which lets everybody in, has its own if the system allows one.
  """
  if mode == 'auto' and (refusal := network_namespace.refusal()):
    _warn(placement, _refused(refusal), namespaces=False)


def _refused(why: str) -> str:
  return f'this system refuses a network namespace ({why})'


def _warn(placement: Mapping[str, Resources], obstacle: str, namespaces: bool) -> None:
  if exposed := _exposed(placement, namespaces):
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
