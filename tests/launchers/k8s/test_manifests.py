"""The manifests of --launcher=k8s, against the schemas of JobSet and Kubernetes."""

import copy
import dataclasses
import os
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
from tests.programs_under_test import ROOT, launch

RUN = Run(
  'lp-demo',
  'registry/image:1',
  ['python', 'launch.py'],
  volume='runs',
  token='0badcafe',
  node_timeout=300.0,
)
MONITOR = Group('monitor', 1, Resources(cpus=0, with_launcher=True), [8900])
TPU = Resources(accelerator='tpu-v6e', topology='2x4', num_devices=8, cpus=8, memory_gb=1.5)
GROUPS = [
  MONITOR,
  Group('inference_learner', 1, TPU, [8901]),
  Group(
    'actor',
    3,
    Resources(
      labels={'pool': 'cpu'},
      uses_run_dir=False,
      env={'COLOUR': 'green'},
      restart='on_failure',
      max_restarts=7,
    ),
  ),
  Group('scorer', 1, Resources(accelerator='gpu', resources={'example.com/disk': 2})),
]
# Of every pod. The heartbeat is in memory, so that a full disk stops none.
OWN_VOLUMES = [
  {'name': 'scratch', 'emptyDir': {}},
  {'name': 'heartbeat', 'emptyDir': {'medium': 'Memory', 'sizeLimit': '1Mi'}},
]
DNS = {'ports': [{'protocol': 'UDP', 'port': 53}, {'protocol': 'TCP', 'port': 53}]}
METADATA = [
  {
    'to': [{'ipBlock': {'cidr': f'169.254.169.{host}/32'}}],
    'ports': [{'protocol': 'TCP', 'port': port}],
  }
  for host, port in ((254, 80), (252, 988))
]


def _jobs(groups, run=RUN):
  manifest = jobset.manifest(run, groups)
  schemas.validate_jobset(manifest)
  return {job['name']: job['template'] for job in manifest['spec']['replicatedJobs']}


def _pod(job):
  return job['spec']['template']['spec']


def test_a_jobset_fits_the_schemas_and_says_what_each_group_needs():
  jobs = _jobs(GROUPS)
  assert list(jobs) == ['monitor', 'inference-learner', 'actor', 'scorer']
  assert [jobs['actor']['spec'][k] for k in ('parallelism', 'completions')] == [3, 3]

  learner = _pod(jobs['inference-learner'])
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

  actor = _pod(jobs['actor'])
  assert actor['nodeSelector'] == {'pool': 'cpu'}
  assert actor['volumes'] == OWN_VOLUMES
  assert {'name': 'COLOUR', 'value': 'green'} in actor['containers'][0]['env']
  failures = "metadata.annotations['batch.kubernetes.io/job-index-failure-count']"
  source = {'fieldRef': {'fieldPath': failures}}
  assert {'name': 'LAUNCHPOD_FAILURES', 'valueFrom': source} in actor['containers'][0]['env']
  assert actor['containers'][0]['command'] == ['python', 'launch.py', '--pod_group=actor']
  assert _pod(jobs['monitor'])['containers'][0]['command'][-1] == '--pod_ends_program'
  limits = _pod(jobs['scorer'])['containers'][0]['resources']['limits']
  assert limits == {'nvidia.com/gpu': '1', 'example.com/disk': '2'}


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
  assert {_pod(job)['restartPolicy'] for job in jobs.values()} == {'Never'}


def test_the_end_of_the_node_that_is_with_the_launcher_is_the_end_of_the_program():
  policy = jobset.manifest(RUN, GROUPS)['spec']['successPolicy']
  assert policy == {'operator': 'All', 'targetReplicatedJobs': ['monitor']}
  manifest = jobset.manifest(RUN, GROUPS[1:])
  schemas.validate_jobset(manifest)
  assert manifest['spec']['successPolicy'] == {'operator': 'All'}


def test_a_slice_of_several_machines_has_a_pod_on_each():
  resources = Resources(accelerator='tpu-v5e', topology='4x4', num_devices=4)
  groups = [MONITOR, Group('learner', 4, resources, [8901, 8902, 8903, 8904])]
  job = _jobs(groups)['learner']
  assert job['metadata']['annotations'] == {
    'alpha.jobset.sigs.k8s.io/exclusive-topology': 'cloud.google.com/gke-nodepool'
  }
  (container,) = _pod(job)['containers']
  assert container['resources']['limits'] == {'google.com/tpu': '4'}
  # The machines of the slice find each other on ports of libtpu's choice.
  policy, _ = network.policies(RUN, groups)
  schemas.validate(policy)
  assert 'ports' not in policy['spec']['ingress'][0] | policy['spec']['egress'][0]


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
def test_a_destination_that_is_none_is_refused(text):
  with pytest.raises(ValueError, match=f'^--k8s_egress={text} is none of all, metadata'):
    network.policies(dataclasses.replace(RUN, egress=[text]), [MONITOR])


def test_a_pod_may_do_no_more_than_it_must():
  cpu = [g for g in GROUPS if g.resources.accelerator_kind != 'tpu']
  for groups, user, expected in ((cpu, None, 1000), (cpu, 4711, 4711), (GROUPS, 4711, 4711)):
    for job in _jobs(groups, dataclasses.replace(RUN, user=user)).values():
      pod = _pod(job)
      assert pod['securityContext'] == {
        'runAsUser': expected,
        'runAsGroup': expected,
        'seccompProfile': {'type': 'RuntimeDefault'},
        'runAsNonRoot': True,
        'fsGroup': expected,
        'fsGroupChangePolicy': 'OnRootMismatch',
      }
      assert pod['containers'][0]['securityContext'] == {
        'allowPrivilegeEscalation': False,
        'capabilities': {'drop': ['ALL']},
        'readOnlyRootFilesystem': True,
      }


def test_every_pod_is_checked_for_hangs_as_often_as_the_timeout_asks_for():
  for job in _jobs(GROUPS).values():
    (container,) = _pod(job)['containers']
    assert {'name': 'LAUNCHPOD_HEARTBEAT_FILE', 'value': '/heartbeat/node'} in container['env']
    for name, failures in (('startupProbe', 40), ('livenessProbe', 3)):
      assert container[name] == {
        'exec': {'command': ['python', '-S', '-m', 'launchers.k8s.liveness', '300']},
        'periodSeconds': 30,
        'timeoutSeconds': 30,
        'failureThreshold': failures,
      }


def test_all_pods_are_root_where_one_has_a_tpu_or_the_user_says_so():
  for groups, user in ((GROUPS, None), ([MONITOR], 0)):
    for job in _jobs(groups, dataclasses.replace(RUN, user=user)).values():
      pod = _pod(job)
      assert pod['securityContext'] == {
        'runAsUser': 0,
        'runAsGroup': 0,
        'seccompProfile': {'type': 'RuntimeDefault'},
      }
      assert pod['containers'][0]['securityContext']['capabilities'] == {'drop': ['ALL']}


def test_every_pod_can_write_to_its_temporary_and_home_directory_and_writers_to_their_run():
  unkept = [Group('monitor', 1, Resources(with_launcher=True)), GROUPS[2]]
  monitor, actor = map(_pod, _jobs(unkept, dataclasses.replace(RUN, volume='')).values())
  assert monitor['volumes'] == [{'name': 'runs', 'emptyDir': {}}, *OWN_VOLUMES]
  for pod, paths in ((monitor, ['/runs', '/tmp', '/heartbeat']), (actor, ['/tmp', '/heartbeat'])):
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
    if '/runs' in [m['mountPath'] for m in _pod(job)['containers'][0]['volumeMounts']]
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
    (container,) = _pod(job)['containers']
    found = [v['value'] for v in container['env'] if v['name'] == 'LAUNCHPOD_RUN']
    # The template of a Job has it, and so has a pod that replaces another.
    assert found == ['0badcafe']


def test_kubernetes_puts_nothing_into_what_the_user_says():
  actor = Group('actor', 1, Resources(env={'A': '$(HOME) $$'}))
  run = dataclasses.replace(RUN, command=['python', 'launch.py', '--env_options=a=$(HOME)'])
  (container,) = _pod(_jobs([actor], run)['actor'])['containers']
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


def test_the_validation_finds_a_network_policy_that_is_wrong():
  policy = network.policies(RUN, GROUPS)[0]
  policy['spec']['ingress'][0]['port'] = 1
  with pytest.raises(kubernetes_validate.ValidationError):
    schemas.validate(policy)


@pytest.mark.parametrize(
  'group, words',
  [
    (Group('g', 1, Resources(accelerator='tpu')), ["group 'g'", 'accelerator', 'topology']),
    (Group('g', 1, Resources(accelerator='tpu-v5e')), ["group 'g'", 'topology']),
    (
      Group('g', 1, Resources(accelerator='tpu-v5e', topology='4x4')),
      ['4x4 has 16 chips', '1 node'],
    ),
    (
      Group('g', 3, Resources(accelerator='tpu-v5e', topology='2x4')),
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
def test_what_cannot_be_placed_is_refused_in_one_sentence(group, words):
  with pytest.raises(ValueError) as error:
    jobset.manifest(RUN, [MONITOR, group] if group.label != 'monitor' else [group])
  for word in words:
    assert word in str(error.value)


@pytest.mark.parametrize('program', registry.PROGRAMS)
def test_the_default_name_leaves_room_for_every_group(program):
  module = registry.load(program)
  groups = module.make_program(module.Config(run_dir='/runs/x').resolve()).groups
  name = manifests.jobset_name(program, 'gymnasium:LunarLander-v3')
  assert re.fullmatch(r'[a-z][-a-z0-9]{10,20}-\d{10}', name)
  jobset.check_names(Run(name, 'x', []), [Group(label, 9999, Resources()) for label in groups])


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
  ],
)
def test_an_accelerator_that_is_none_is_refused(fields, words):
  with pytest.raises(ValueError, match=re.escape(words)):
    Resources(**fields)


def test_a_tpu_of_a_certain_type_is_a_tpu():
  assert TPU.accelerator_kind == 'tpu'
  assert Resources().accelerator_kind is None
  assert placement.environment_variables(TPU)['JAX_PLATFORMS'] == 'tpu,cpu'
  assert TPU.describe().startswith('TPU-V6E host, devices: 8 of them, topology: 2x4')


_TPU_FLAGS = (
  '--accelerator=tpu',
  '--actor_devices=0',
  '--learner_devices=1,2,3',
  '--batch_size=48',
)


def _placement(tmp_path):
  path = tmp_path / 'placement.yaml'
  path.write_text('inference_learner: {accelerator: tpu-v5e, topology: 2x2, cpus: 24}\n')
  return f'--placement={path}'


@pytest.mark.slow
def test_launch_writes_valid_manifests_and_says_that_nobody_has_run_them(tmp_path):
  output = tmp_path / 'out put'
  process = launch(
    *('--launcher=k8s', '--program=r2d2', '--env=bsuite:memory_len/15', '--num_replay_shards=2'),
    *(*_TPU_FLAGS, _placement(tmp_path), '--image=registry/image:1', f'--output={output}'),
    *('--k8s_volume=claim', '--k8s_user=7', '--k8s_egress=metadata,10.0.0.0/8'),
    '--node_timeout=60',
  )
  assert process.returncode == 0, process.stderr
  manifest = yaml.safe_load((output / 'jobset.yaml').read_text())
  policy, metadata = yaml.safe_load_all((output / 'networkpolicy.yaml').read_text())
  schemas.validate_jobset(manifest)
  schemas.validate(policy)
  schemas.validate(metadata)
  name = manifest['metadata']['name']
  assert re.fullmatch(r'r2d2-bsuite-memory-le-\d{10}', name)
  jobs = {job['name']: job['template'] for job in manifest['spec']['replicatedJobs']}
  assert jobs['replay']['spec']['completions'] == 2
  (container,) = _pod(jobs['inference-learner'])['containers']
  assert container['livenessProbe']['exec']['command'][-1] == '60'
  for argument in (
    '--program=r2d2',
    '--env=bsuite:memory_len/15',
    '--learner_devices=1,2,3',
    f'--cpu_cores={len(os.sched_getaffinity(0))}',  # Not those of the pods.
    f'--run_dir=/runs/{name}',
    f'--pod_hosts={name}-{{job}}-0-{{index}}.{name}',
  ):
    assert argument in container['command']
  assert not [a for a in container['command'] if a.startswith(('--placement', '--output'))]
  tokens = set()
  for template in jobs.values():
    assert _pod(template)['securityContext']['runAsUser'] == 7
    env = _pod(template)['containers'][0]['env']
    tokens |= {v['value'] for v in env if v['name'] == 'LAUNCHPOD_RUN'}
  assert len(tokens) == 1 and re.fullmatch('[0-9a-f]{32}', *tokens)
  mounted = [
    job
    for job, template in jobs.items()
    if any('persistentVolumeClaim' in volume for volume in _pod(template)['volumes'])
  ]
  assert mounted == ['monitor', 'replay', 'inference-learner']
  # Monitor, two shards of replay, inference-learner.
  ports = policy['spec']['ingress'][0]['ports']
  assert [entry['port'] for entry in ports] == [8900, 8901, 8902, 8903]
  assert len(policy['spec']['egress']) == 5

  said = process.stdout
  assert 'validated against the schemas of JobSet and Kubernetes, not run on a cluster' in said
  assert f"kubectl apply -f '{output}'\n" in said
  assert f'(docker build --build-arg ACCELERATOR=tpu --tag registry/image:1 {ROOT})' in said
  assert f'jobset-name={name},' in said and 'replicatedjob-name=monitor\n' in said
  assert 'monitor, replay, inference_learner' in said and 'ReadWriteMany' in said


@pytest.mark.slow
def test_a_dry_run_prints_the_graph_and_the_manifests(tmp_path):
  flags = ('--launcher=k8s', '--dry_run', '--image=x', *_TPU_FLAGS, _placement(tmp_path))
  process = launch(*flags)
  assert process.returncode == 0, process.stderr
  graph, *documents = process.stdout.split('\n---\n')
  learner = 'on a TPU-V5E host, devices: 4 of them, topology: 2x2, cpus: 24'
  assert f'{learner}\n' in graph  # Without a volume it has no restarts.
  assert 'on a CPU worker, restarts: 20\n' in graph
  manifest, *policies = map(yaml.safe_load, documents)
  schemas.validate_jobset(manifest)
  assert len(policies) == 2 and not any(map(schemas.validate, policies))
  again = launch(*flags, '--k8s_egress=10.0.0.1')
  assert again.returncode == 2 and again.stderr.startswith(
    'error: --k8s_egress=10.0.0.1 is none of'
  )
  assert f'{learner}, restarts: 20\n' in launch(*flags, '--k8s_volume=claim').stdout


def test_a_run_is_not_resumed_by_writing_manifests(tmp_path):
  process = launch('--launcher=k8s', f'--resume={tmp_path}')
  assert process.returncode == 2 and process.stderr.count('\n') == 1
  assert '--resume is not for --launcher=k8s' in process.stderr
  assert '--k8s_volume' in process.stderr
