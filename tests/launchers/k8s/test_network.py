"""Network policies: what the pods of a run reach, and what reaches them."""

import dataclasses

import kubernetes_validate
import pytest

from launchers.k8s import network
from launchers.k8s.container import Group
from launchers.placement import Resources
from tests.launchers.k8s import schemas
from tests.launchers.k8s.example_run import GROUPS, MONITOR, RUN

DNS = {'ports': [{'protocol': 'UDP', 'port': 53}, {'protocol': 'TCP', 'port': 53}]}
METADATA = [
  {
    'to': [{'ipBlock': {'cidr': f'169.254.169.{host}/32'}}],
    'ports': [{'protocol': 'TCP', 'port': port}],
  }
  for host, port in ((254, 80), (252, 988))
]


def test_the_processes_of_one_job_reach_each_other_on_any_port():
  def ports(size):
    learner = Group('learner', size, Resources(accelerator='gpu', one_job=True), [8901])
    policy = network.policies(RUN, [MONITOR, learner])[0]
    schemas.validate(policy)
    return policy['spec']['ingress'][0].get('ports')

  assert ports(2) is None
  assert [entry['port'] for entry in ports(1)] == [8900, 8901]


def test_only_pods_of_the_run_reach_its_ports():
  policy = network.policies(RUN, GROUPS)[0]
  schemas.validate(policy)
  own = {'matchLabels': {'jobset.sigs.k8s.io/jobset-name': 'lp-demo'}}
  ports = [{'protocol': 'TCP', 'port': 8900}, {'protocol': 'TCP', 'port': 8901}]
  assert policy['spec'] == {
    'podSelector': own,
    'policyTypes': ['Ingress', 'Egress'],
    'ingress': [{'from': [{'podSelector': own}], 'ports': ports}],
    'egress': [{'to': [{'podSelector': own}], 'ports': ports}, DNS],
  }


def test_pods_with_a_tpu_alone_reach_the_metadata_server():
  first, second = network.policies(RUN, GROUPS)
  schemas.validate(second)
  assert second['metadata']['name'] == 'lp-demo-tpu'
  assert second['spec']['policyTypes'] == ['Egress'] and second['spec']['egress'] == METADATA
  (chosen,) = second['spec']['podSelector']['matchExpressions']
  assert chosen['values'] == ['inference-learner']
  assert chosen['key'] == 'jobset.sigs.k8s.io/replicatedjob-name'
  assert second['spec']['podSelector']['matchLabels'] == first['spec']['podSelector']['matchLabels']
  assert len(network.policies(RUN, [MONITOR])) == 1


@pytest.mark.parametrize(
  'text, rules',
  [
    ('all', [{}]),
    ('metadata', METADATA),
    ('10.1.0.0/16', [{'to': [{'ipBlock': {'cidr': '10.1.0.0/16'}}]}]),
    (
      'fd00::/8:443',
      [
        {'to': [{'ipBlock': {'cidr': 'fd00::/8'}}], 'ports': [{'protocol': 'TCP', 'port': 443}]},
      ],
    ),
  ],
)
def test_pods_reach_what_the_user_names(text, rules):
  (policy,) = network.policies(dataclasses.replace(RUN, egress=[text]), [MONITOR])
  schemas.validate(policy)
  assert policy['spec']['egress'][1:] == [DNS, *rules]


@pytest.mark.parametrize(
  'text', ['', 'any', '10.1.2.3', '10.1.2.3/16', '10.0.0.0/8:', '10.0.0.0/8:0', '10.0.0.0/8:65536']
)
def test_an_invalid_destination_is_rejected(text):
  with pytest.raises(ValueError, match=f'^--k8s_egress={text} is none of all, metadata'):
    network.policies(dataclasses.replace(RUN, egress=[text]), [MONITOR])


def test_the_validation_finds_a_network_policy_that_is_wrong():
  policy = network.policies(RUN, GROUPS)[0]
  policy['spec']['ingress'][0]['port'] = 1
  with pytest.raises(kubernetes_validate.ValidationError):
    schemas.validate(policy)
