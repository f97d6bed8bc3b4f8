"""The NetworkPolicies of a run on Kubernetes: the connections that its pods may accept and open."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import Any

from launchers import one_node
from launchers.k8s.container import Group, Run
from launchers.k8s.jobset import JOB_LABEL, JOBSET_LABEL

ANYWHERE = 'all'
METADATA = 'metadata'
# Metadata servers of Google Cloud, which describe the machine to libtpu; the second is GKE's, for pods.
_METADATA_SERVERS = {'169.254.169.254/32': 80, '169.254.169.252/32': 988}


def policies(run: Run, groups: Sequence[Group]) -> list[dict[str, Any]]:
  """Returns the NetworkPolicies.

  The first allows connections to the run's ports from the run's own pods only. It allows the pods to
  connect to those ports, to DNS and to `run.egress`. If a group has a TPU, a second policy allows its
  pods to connect to the metadata server.

  Raises:
    ValueError: if an entry of `run.egress` is invalid; one sentence.
  """
  own = {'matchLabels': {JOBSET_LABEL: run.name}}
  listed = [_port('TCP', port) for group in groups for port in group.ports]
  # The machines of a TPU slice, and the collectives of a multi-process job, choose their own ports.
  between_hosts = any(group.size > 1 and group.resources.one_job for group in groups)
  ports = {} if between_hosts else {'ports': listed}
  peers = [{'podSelector': own}]
  # The address of the DNS resolver depends on the cluster.
  egress = [{'to': peers, **ports}] if listed else []
  egress.append({'ports': [_port('UDP', 53), _port('TCP', 53)]})
  egress += [rule for text in run.egress for rule in _destinations(text)]
  result = [
    _policy(
      run.name,
      podSelector=dict(own),
      policyTypes=['Ingress', 'Egress'],
      ingress=[{'from': peers, **ports}] if listed else [],
      egress=egress,
    )
  ]
  tpus = [one_node.host_name(g.label) for g in groups if g.resources.accelerator_kind == 'tpu']
  if tpus:
    chosen = [{'key': JOB_LABEL, 'operator': 'In', 'values': tpus}]
    result.append(
      _policy(
        f'{run.name}-tpu',
        podSelector={**own, 'matchExpressions': chosen},
        policyTypes=['Egress'],
        egress=_destinations(METADATA),
      )
    )
  return result


def _policy(name: str, **spec: Any) -> dict[str, Any]:
  return {
    'apiVersion': 'networking.k8s.io/v1',
    'kind': 'NetworkPolicy',
    'metadata': {'name': name},
    'spec': spec,
  }


def _port(protocol: str, port: int) -> dict[str, Any]:
  return {'protocol': protocol, 'port': port}


def _destinations(text: str) -> list[dict[str, Any]]:
  """Returns the rules for one entry of --k8s_egress: a word, or a network with an optional port."""
  if text == ANYWHERE:
    return [{}]
  if text == METADATA:
    return [_to(network, port) for network, port in _METADATA_SERVERS.items()]
  address, slash, rest = text.partition('/')
  bits, colon, port = rest.partition(':')
  try:
    network = str(ipaddress.ip_network(f'{address}{slash}{bits}'))
    number = int(port) if colon else 0
    if not slash or (colon and not 0 < number < 1 << 16):
      raise ValueError
  except ValueError:
    raise ValueError(
      f'--k8s_egress={text} is none of {ANYWHERE}, {METADATA}, a network such as 10.1.0.0/16, or one '
      'with a port, such as 10.1.2.3/32:443.'
    ) from None
  return [_to(network, number)]


def _to(network: str, port: int) -> dict[str, Any]:
  ports = {'ports': [_port('TCP', port)]} if port else {}
  return {'to': [{'ipBlock': {'cidr': network}}], **ports}
