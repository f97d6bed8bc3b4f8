"""The manifests of --launcher=k8s, against the schemas of JobSet and Kubernetes."""

import copy
import dataclasses
import re

import jsonschema
import kubernetes_validate
import pytest
import yaml

from launchers import placement
from launchers.k8s import jobset, manifests, network
from launchers.k8s.container import Group, Run
from launchers.placement import Resources
from programs import registry
from tests.launchers.k8s import schemas
from tests.launchers.k8s.example_run import GROUPS, MONITOR, RUN, TPU, pod_of

# Of every pod. The heartbeat is in memory, so that a full disk stops none.
OWN_VOLUMES = [
  {'name': 'scratch', 'emptyDir': {}},
  {'name': 'heartbeat', 'emptyDir': {'medium': 'Memory', 'sizeLimit': '1Mi'}},
  {'name': 'certificate', 'secret': {'secretName': 'lp-demo', 'defaultMode': 0o400}},
]


def _jobs(groups, run=RUN):
  manifest = jobset.manifest(run, groups)
  schemas.validate_jobset(manifest)
  return {job['name']: job['template'] for job in manifest['spec']['replicatedJobs']}


def test_a_jobset_fits_the_schemas_and_says_what_each_group_needs():
  jobs = _jobs(GROUPS)
  assert list(jobs) == ['monitor', 'inference-learner', 'actor', 'scorer']
  assert [jobs['actor']['spec'][k] for k in ('parallelism', 'completions')] == [3, 3]

  learner = pod_of(jobs['inference-learner'])
  assert learner['nodeSelector'] == {
    'cloud.google.com/gke-tpu-accelerator': 'tpu-v6e-slice',
    'cloud.google.com/gke-tpu-topology': '2x4',
  }
  (container,) = learner['containers']
  assert container['resources'] == {
    'limits': {'google.com/tpu': '8'},
    'requests': {'google.com/tpu': '8', 'cpu': '8', 'memory': '1536Mi'},
  }
  variables = {v['name']: v['value'] for v in container['env'] if 'value' in v}
  assert variables['JAX_PLATFORMS'] == 'tpu,cpu' and 'TPU_VISIBLE_CHIPS' not in variables
  assert learner['volumes'][0]['persistentVolumeClaim'] == {'claimName': 'runs'}
  assert container['volumeMounts'][0]['mountPath'] == '/runs'

  actor = pod_of(jobs['actor'])
  assert actor['nodeSelector'] == {'pool': 'cpu'}
  assert actor['volumes'] == OWN_VOLUMES
  assert {'name': 'COLOUR', 'value': 'green'} in actor['containers'][0]['env']
  failures = "metadata.annotations['batch.kubernetes.io/job-index-failure-count']"
  source = {'fieldRef': {'fieldPath': failures}}
  assert {'name': 'LAUNCHPOD_FAILURES', 'valueFrom': source} in actor['containers'][0]['env']
  assert actor['containers'][0]['command'] == ['python', 'launch.py', '--pod_group=actor']
  assert pod_of(jobs['monitor'])['containers'][0]['command'][-1] == '--pod_ends_program'
  limits = pod_of(jobs['scorer'])['containers'][0]['resources']['limits']
  assert limits == {'nvidia.com/gpu': '1', 'example.com/disk': '2'}


def test_the_jobs_are_created_anew_when_a_pod_of_a_multi_process_job_fails():
  resources = Resources(restart='on_failure', one_job=True, max_restarts=7)
  groups = [*GROUPS, Group('replica', 2, resources, [8902])]
  manifest = jobset.manifest(RUN, groups)
  schemas.validate_jobset(manifest)
  policy = manifest['spec']['failurePolicy']
  assert policy['maxRestarts'] == 7
  rules = {rule['name']: rule for rule in policy['rules']}
  assert [*rules] == ['evicted', 'hopeless', 'failed', 'others']
  assert {name: rule['action'] for name, rule in rules.items()} == {
    'evicted': 'RestartJobSetAndIgnoreMaxRestarts',
    'hopeless': 'FailJobSet',
    'failed': 'RestartJobSet',
    'others': 'FailJobSet',
  }
  for name in ('evicted', 'failed'):
    assert rules[name]['targetReplicatedJobs'] == ['replica']
  for name in ('evicted', 'hopeless'):
    assert rules[name]['onJobFailureReasons'] == ['PodFailurePolicy']
  [pattern] = rules['evicted']['onJobFailureMessagePatterns']
  pod = 'Pod default/replica-0-1 has condition DisruptionTarget matching FailJob rule at index 1'
  assert re.fullmatch(pattern, pod)
  job = _jobs(groups)['replica']['spec']
  assert job['backoffLimit'] == 0 and 'backoffLimitPerIndex' not in job
  # Without its fellows a pod that is evicted cannot be replaced either.
  assert [rule['action'] for rule in job['podFailurePolicy']['rules']] == ['FailJob', 'FailJob']


def test_a_pod_is_replaced_alone_or_its_failure_ends_the_program():
  manifest, jobs = jobset.manifest(RUN, GROUPS), _jobs(GROUPS)
  # No rule and no restart of the whole set: the failure of any Job is that of the program.
  assert manifest['spec']['failurePolicy'] == {'maxRestarts': 0}
  actor, learner = jobs['actor']['spec'], jobs['inference-learner']['spec']
  assert learner['backoffLimit'] == 0 and 'backoffLimitPerIndex' not in learner
  assert actor['backoffLimitPerIndex'] == 7 and actor['maxFailedIndexes'] == 0
  assert 'backoffLimit' not in actor
  hopeless, evicted = actor['podFailurePolicy']['rules']
  assert hopeless == {'action': 'FailJob', 'onExitCodes': {'operator': 'In', 'values': [2]}}
  assert evicted['action'] == 'Ignore'
  assert evicted['onPodConditions'][0]['type'] == 'DisruptionTarget'
  assert {pod_of(job)['restartPolicy'] for job in jobs.values()} == {'Never'}


def test_the_end_of_the_node_that_is_with_the_launcher_is_the_end_of_the_program():
  policy = jobset.manifest(RUN, GROUPS)['spec']['successPolicy']
  assert policy == {'operator': 'All', 'targetReplicatedJobs': ['monitor']}
  manifest = jobset.manifest(RUN, GROUPS[1:])
  schemas.validate_jobset(manifest)
  assert manifest['spec']['successPolicy'] == {'operator': 'All'}


def test_the_replicas_of_a_learner_are_the_hosts_of_one_slice():
  for accelerator, topology, size, limit in (
    ('tpu-v5e', '4x4', 4, '4'),
    ('tpu7x', '2x2x4', 4, '4'),
  ):
    resources = Resources(accelerator=accelerator, topology=topology, num_devices=4, one_job=True)
    learner = Group('learner', size, resources, range(8901, 8901 + size))
    job = _jobs([MONITOR, learner])['learner']
    assert job['metadata']['annotations'] == {
      'alpha.jobset.sigs.k8s.io/exclusive-topology': 'cloud.google.com/gke-nodepool'
    }
    (container,) = pod_of(job)['containers']
    assert container['resources']['limits'] == {'google.com/tpu': limit}
    # The machines of the slice find each other on ports of libtpu's choice.
    policy, _ = network.policies(RUN, [MONITOR, learner])
    schemas.validate(policy)
    assert 'ports' not in policy['spec']['ingress'][0] | policy['spec']['egress'][0]


def test_nodes_that_are_not_one_job_have_a_slice_each():
  """Another node on a host of its slice would have to be in the same JAX job."""
  resources = Resources(accelerator='tpu-v6e', topology='2x2', num_devices=4)
  groups = [MONITOR, Group('inference', 3, resources, [8901, 8902, 8903])]
  job = _jobs(groups)['inference']
  assert 'metadata' not in job and job['spec']['parallelism'] == 3
  (container,) = pod_of(job)['containers']
  assert container['resources']['limits'] == {'google.com/tpu': '4'}
  policy, _ = network.policies(RUN, groups)
  assert [entry['port'] for entry in policy['spec']['ingress'][0]['ports']] == [
    8900,
    *range(8901, 8904),
  ]


def test_a_chip_of_tpu7x_is_two_devices():
  resources = Resources(accelerator='tpu7x', topology='2x2x1', num_devices=8)
  pod = pod_of(_jobs([MONITOR, Group('learner', 1, resources)])['learner'])
  assert pod['nodeSelector'] == {
    'cloud.google.com/gke-tpu-accelerator': 'tpu7x',
    'cloud.google.com/gke-tpu-topology': '2x2x1',
  }
  assert pod['containers'][0]['resources']['limits'] == {'google.com/tpu': '4'}
  variables = {v['name']: v.get('value') for v in pod['containers'][0]['env']}
  assert variables['JAX_PLATFORMS'] == 'tpu,cpu'
  assert resources.describe().startswith('TPU7X host, devices: 8 of them')


def test_a_run_waits_in_a_queue_of_kueue_and_has_its_priority_there():
  run = dataclasses.replace(RUN, queue='team', priority='urgent')
  manifest = jobset.manifest(run, GROUPS)
  schemas.validate_jobset(manifest)
  assert manifest['metadata']['labels'] == {
    'kueue.x-k8s.io/queue-name': 'team',
    'kueue.x-k8s.io/priority-class': 'urgent',
  }
  assert 'suspend' not in manifest['spec']  # Kueue sets it.
  assert 'labels' not in jobset.manifest(RUN, GROUPS)['metadata']


@pytest.mark.parametrize(
  'provisioning, label, taints',
  [
    ('on_demand', None, []),
    ('spot', 'cloud.google.com/gke-spot', ['cloud.google.com/gke-spot']),
    (
      'flex_start',
      'cloud.google.com/gke-flex-start',
      ['cloud.google.com/gke-flex-start', 'cloud.google.com/gke-queued'],
    ),
  ],
)
def test_a_group_chooses_how_its_machines_are_rented(provisioning, label, taints):
  resources = Resources(provisioning=provisioning, labels={'pool': 'a'}, priority_class='low')
  pod = pod_of(_jobs([MONITOR, Group('actor', 2, resources)])['actor'])
  assert pod['nodeSelector'] == {'pool': 'a'} | ({label: 'true'} if label else {})
  assert [(t['key'], t['value'], t['effect']) for t in pod.get('tolerations', [])] == [
    (taint, 'true', 'NoSchedule') for taint in taints
  ]
  assert pod['priorityClassName'] == 'low'
  assert ('spot' in resources.describe()) is (provisioning == 'spot')


def test_a_pod_may_do_no_more_than_it_must():
  cpu = [g for g in GROUPS if g.resources.accelerator_kind != 'tpu']
  for groups, user, expected in ((cpu, None, 1000), (cpu, 4711, 4711), (GROUPS, 4711, 4711)):
    for job in _jobs(groups, dataclasses.replace(RUN, user=user)).values():
      pod = pod_of(job)
      security = pod['securityContext']
      assert security['runAsNonRoot'] and security['seccompProfile']['type'] == 'RuntimeDefault'
      assert {security[name] for name in ('runAsUser', 'runAsGroup', 'fsGroup')} == {expected}
      confined = pod['containers'][0]['securityContext']
      assert confined['readOnlyRootFilesystem'] and not confined['allowPrivilegeEscalation']
      assert confined['capabilities'] == {'drop': ['ALL']}


def test_every_pod_is_checked_for_hangs_as_often_as_the_timeout_asks_for():
  for job in _jobs(GROUPS).values():
    (container,) = pod_of(job)['containers']
    assert {'name': 'LAUNCHPOD_HEARTBEAT_FILE', 'value': '/heartbeat/node'} in container['env']
    # A node that starts may be silent for four times --node_timeout, which is 300 s here.
    for name, seconds in (('startupProbe', 1200), ('livenessProbe', 90)):
      probe = container[name]
      assert probe['exec']['command'][-2:] == ['launchers.k8s.liveness', '300']
      assert probe['failureThreshold'] * probe['periodSeconds'] == seconds


def test_all_pods_are_root_where_one_has_a_tpu_or_the_user_says_so():
  for groups, user in ((GROUPS, None), ([MONITOR], 0)):
    for job in _jobs(groups, dataclasses.replace(RUN, user=user)).values():
      pod = pod_of(job)
      security = pod['securityContext']
      assert security['runAsUser'] == 0 and not security.get('runAsNonRoot')
      assert security['seccompProfile']['type'] == 'RuntimeDefault'
      assert pod['containers'][0]['securityContext']['capabilities'] == {'drop': ['ALL']}


def test_every_pod_can_write_to_its_temporary_and_home_directory_and_writers_to_their_run():
  unkept = [Group('monitor', 1, Resources(with_launcher=True)), GROUPS[2]]
  monitor, actor = map(pod_of, _jobs(unkept, dataclasses.replace(RUN, volume='')).values())
  assert monitor['volumes'] == [{'name': 'runs', 'emptyDir': {}}, *OWN_VOLUMES]
  own = ['/tmp', '/heartbeat', '/certificate']
  for pod, paths in ((monitor, ['/runs', *own]), (actor, own)):
    (container,) = pod['containers']
    assert [mount['mountPath'] for mount in container['volumeMounts']] == paths
    assert {'name': 'HOME', 'value': '/tmp'} in container['env']


_USERS_OWN = """
import launchpad as lp
from programs.options.common import CommonConfig as Config

class Node:
  def run(self):
    pass

def make_program(config):
  program = lp.Program('mine')
  for label in ('a', 'b', 'c'):
    program.add_node(lp.PyClassNode(Node), label=label)
  return program
"""
_DECLARED = """
from launchers.placement import Resources

def placement(config):
  return {
    'a': Resources(restart='on_failure'),
    'b': Resources(restart='on_failure', uses_run_dir=False),
    'c': Resources(restart='on_failure', uses_run_dir=False, with_launcher=True),
  }
"""


def _users_own(tmp_path, text, volume):
  """Returns the groups that have the run directory, and those whose pods are replaced."""
  path = tmp_path / f'{len(text)}.py'
  path.write_text(text)
  program = registry.load(f'{path}:make_program')
  config = program.Config().resolve()
  generated = manifests.generate(
    program.make_program(config),
    program.placement(config),
    dataclasses.replace(RUN, volume=volume),
    8900,
  )
  jobset = yaml.safe_load(generated.manifests['jobset.yaml'])
  schemas.validate_jobset(jobset)
  jobs = {job['name']: job['template'] for job in jobset['spec']['replicatedJobs']}
  mounted = [
    name
    for name, job in jobs.items()
    if '/runs' in [m['mountPath'] for m in pod_of(job)['containers'][0]['volumeMounts']]
  ]
  return mounted, [name for name, job in jobs.items() if 'backoffLimitPerIndex' in job['spec']]


def test_a_users_group_has_the_run_directory_unless_it_declares_that_it_needs_none(tmp_path):
  assert _users_own(tmp_path, _USERS_OWN, 'claim') == (['a', 'b', 'c'], [])
  declared = _USERS_OWN + _DECLARED
  assert _users_own(tmp_path, declared, 'claim') == (['a', 'c'], ['a', 'b', 'c'])
  # A pod that replaced another would not have its run directory.
  assert _users_own(tmp_path, declared, '') == (['a', 'c'], ['b'])


def test_every_pod_has_the_token_of_the_run_whatever_its_group_says():
  groups = [MONITOR, Group('actor', 2, Resources(env={'LAUNCHPOD_RUN': 'mine'}))]
  for job in _jobs(groups).values():
    (container,) = pod_of(job)['containers']
    found = [v['value'] for v in container['env'] if v['name'] == 'LAUNCHPOD_RUN']
    # The template of a Job has it, and so has a pod that replaces another.
    assert found == ['0badcafe']


def test_kubernetes_expands_nothing_in_the_users_values():
  actor = Group('actor', 1, Resources(env={'A': '$(HOME) $$'}))
  run = dataclasses.replace(RUN, command=['python', 'launch.py', '--env_options=a=$(HOME)'])
  (container,) = pod_of(_jobs([actor], run)['actor'])['containers']
  assert {'name': 'A', 'value': '$$(HOME) $$$$'} in container['env']
  assert container['command'][2] == '--env_options=a=$$(HOME)'


@pytest.mark.parametrize(
  'path, value',
  [
    ('successPolicy.operator', 'Alll'),
    ('network.subdomian', 'x'),
    ('failurePolicy.maxRestarts', 'many'),
    ('replicatedJobs.0.replicas', 'one'),
    ('replicatedJobs.0.template.spec.backofLimit', 0),
    ('replicatedJobs.0.template.spec.template.spec.containers.0.imagee', 'x'),
    ('replicatedJobs.0.template.spec.template.spec.containers.0.env.0.value', 1),
    ('replicatedJobs.0.template.spec.template.spec.containers.0.livenessProbe.exec.comand', []),
    ('replicatedJobs.0.template.spec.template.spec.restartPolicy', 3),
    ('replicatedJobs.0.template.spec.template.spec.nodeSelector', ['x']),
  ],
)
def test_the_validation_finds_a_manifest_that_is_wrong(path, value):
  manifest = copy.deepcopy(jobset.manifest(RUN, GROUPS))
  *parents, last = path.split('.')
  part = manifest['spec']
  for key in parents:
    part = part[int(key) if key.isdecimal() else key]
  part[last] = value
  with pytest.raises((jsonschema.ValidationError, kubernetes_validate.ValidationError)):
    schemas.validate_jobset(manifest)


@pytest.mark.parametrize(
  'group, words',
  [
    (
      Group('g', 2, Resources(accelerator='tpu-v5e', topology='4x4')),
      ['4x4 has 16 chips', '1 node', 'slice for itself'],
    ),
    (
      Group('g', 1, Resources(accelerator='tpu7x', topology='2x2x1', num_devices=9)),
      ['needs 9 devices', '2x2x1 has 8'],
    ),
    (Group('g', 1, Resources(accelerator='tpu7x', topology='2x2')), ['has 3 sides, unlike 2x2']),
    (Group('g', 1, Resources(accelerator='tpu')), ["group 'g'", 'accelerator', 'topology']),
    (Group('g', 1, Resources(accelerator='tpu-v5e')), ["group 'g'", 'topology']),
    (
      Group('g', 1, Resources(accelerator='tpu-v5e', topology='4x4')),
      ['4x4 has 16 chips', '1 node'],
    ),
    (
      Group('g', 3, Resources(accelerator='tpu-v5e', topology='2x4', one_job=True)),
      ['2x4 has 8 chips', '3 node'],
    ),
    (Group('g', 1, Resources(accelerator='tpu-v4', topology='2x2')), ['has 3 sides, unlike 2x2']),
    (Group('g', 1, Resources(accelerator='tpu-v5e', topology='2x2x1')), ['has 2 sides']),
    (
      Group('g', 1, Resources(accelerator='tpu-v5e', topology='2x2', num_devices=8)),
      ['needs 8 devices', '2x2 has 4'],
    ),
    (Group('inference_learner' * 3, 1, Resources()), ['--k8s_name=lp-demo', 'shorten it by 6.']),
    (Group('a.b', 1, Resources()), ["'a.b'", 'host name']),
    (Group('monitor', 2, Resources(with_launcher=True)), ["'monitor'", 'with_launcher']),
  ],
)
def test_a_group_that_cannot_be_placed_is_rejected_in_one_sentence(group, words):
  with pytest.raises(ValueError) as error:
    jobset.manifest(RUN, [MONITOR, group] if group.label != 'monitor' else [group])
  for word in words:
    assert word in str(error.value)


def test_the_default_name_leaves_room_for_thousands_of_nodes_in_a_group_of_any_program():
  name = manifests.default_name('path/to/mine.py', 'gymnasium:LunarLander-v3')
  assert re.fullmatch(r'[a-z][-a-z0-9]{10,20}-\d{10}', name)
  jobset.check_names(Run(name, 'x', []), [Group('with_long_name_of_20', 10_000, Resources())])


def test_a_name_of_63_characters_is_taken_and_one_of_64_is_not():
  longest = 'x' * (63 - len('-monitor-0-0-12345'))
  jobset.manifest(Run(longest, 'x', []), [MONITOR])
  with pytest.raises(ValueError, match='64 characters'):
    jobset.manifest(Run(longest + 'x', 'x', []), [MONITOR])


@pytest.mark.parametrize(
  'fields, words',
  [
    ({'accelerator': 'tpu-v9'}, 'tpu-v9'),
    ({'accelerator': 'tpu', 'topology': '2x2'}, 'topology needs'),
    ({'topology': '2x2'}, 'topology needs'),
    ({'accelerator': 'tpu-v5e', 'topology': '2*2'}, 'not like 2x4'),
    ({'provisioning': 'rented'}, "provisioning 'rented' is none of"),
  ],
)
def test_an_invalid_accelerator_is_rejected(fields, words):
  with pytest.raises(ValueError, match=re.escape(words)):
    Resources(**fields)


def test_a_tpu_of_a_certain_type_is_a_tpu():
  assert TPU.accelerator_kind == 'tpu'
  assert Resources().accelerator_kind is None
  assert placement.environment_variables(TPU)['JAX_PLATFORMS'] == 'tpu,cpu'
  assert TPU.describe().startswith('TPU-V6E host, devices: 8 of them, topology: 2x4')
