"""launch.py --launcher=k8s: the files that it writes and prints."""

import errno
import os
import re
import stat

import launchpad as lp
import pytest
import yaml

from agents.options import flatten
from launchers.engine import Job
from launchers.engines import Kubernetes, Pod
from launchers.k8s import pod
from launchers.placement import Resources
from programs import registry
from programs.options import changes, configs
from rundir import run_directory
from tests.launchers.k8s import schemas
from tests.launchers.k8s.example_run import pod_of
from tests.programs_under_test import ROOT, launch

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
    *('--node_timeout=60', '--k8s_queue=team', '--k8s_priority=urgent'),
  )
  assert process.returncode == 0, process.stderr
  manifest = yaml.safe_load((output / 'jobset.yaml').read_text())
  policy, metadata = yaml.safe_load_all((output / 'networkpolicy.yaml').read_text())
  schemas.validate_jobset(manifest)
  schemas.validate(policy)
  schemas.validate(metadata)
  name = manifest['metadata']['name']
  assert re.fullmatch(r'r2d2-bsuite-memory-\d{10}', name)
  assert manifest['metadata']['labels']['kueue.x-k8s.io/queue-name'] == 'team'
  jobs = {job['name']: job['template'] for job in manifest['spec']['replicatedJobs']}
  assert jobs['replay']['spec']['completions'] == 2
  (container,) = pod_of(jobs['inference-learner'])['containers']
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
    assert pod_of(template)['securityContext']['runAsUser'] == 7
    env = pod_of(template)['containers'][0]['env']
    assert {'name': 'COURIER_TLS', 'value': '/certificate/run.pem'} in env
    tokens |= {v['value'] for v in env if v['name'] == 'LAUNCHPOD_RUN'}
  assert len(tokens) == 1 and re.fullmatch('[0-9a-f]{32}', *tokens)
  mounted = [
    job
    for job, template in jobs.items()
    if any('persistentVolumeClaim' in volume for volume in pod_of(template)['volumes'])
  ]
  assert mounted == ['monitor', 'replay', 'inference-learner']
  # Monitor, two shards of replay, inference-learner.
  ports = policy['spec']['ingress'][0]['ports']
  assert [entry['port'] for entry in ports] == [8900, 8901, 8902, 8903]
  assert len(policy['spec']['egress']) == 5

  # What only its owner may read has the key, and nothing else has.
  secret = yaml.safe_load((output / 'secret.yaml').read_text())
  schemas.validate(secret)
  assert secret['metadata']['name'] == name
  assert secret['stringData']['run.pem'].startswith('-----BEGIN PRIVATE KEY-----\n')
  modes = {path.name: stat.S_IMODE(path.stat().st_mode) & 0o077 for path in output.iterdir()}
  assert [file for file, mode in modes.items() if not mode] == ['secret.yaml']
  others = [path.read_text() for path in output.iterdir() if path.name != 'secret.yaml']
  assert not any('PRIVATE KEY' in text for text in [*others, process.stdout, process.stderr])

  said = process.stdout
  assert 'validated against the schemas of JobSet and Kubernetes, not run on a cluster' in said
  assert f"kubectl apply -f '{output}'\n" in said and 'queue team of Kueue' in said
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
  assert re.search(r'\n  inference_learner +1 x 24 CPU, 4 TPU-V5E, .*topology 2x2', graph)
  assert re.search(r'\n  in all +\d+ nodes: \d+ CPU, 4 TPU', graph)
  manifest, *policies, secret = map(yaml.safe_load, documents)
  schemas.validate_jobset(manifest)
  assert len(policies) == 2 and not any(map(schemas.validate, policies))
  assert secret['stringData'] == {'run.pem': '***'}
  again = launch(*flags, '--k8s_egress=10.0.0.1')
  assert again.returncode == 2 and again.stderr.startswith(
    'error: --k8s_egress=10.0.0.1 is none of'
  )
  assert f'{learner}, restarts: 20\n' in launch(*flags, '--k8s_volume=claim').stdout


@pytest.mark.parametrize('kept', [False, True])
def test_a_learner_on_spot_machines_that_cannot_come_back_is_warned_about(kept):
  placement = {
    'learner': Resources(provisioning='spot', restart='on_failure'),
    'actor': Resources(provisioning='spot', restart='on_failure', uses_run_dir=False),
  }
  program = lp.Program('mine')
  for label in placement:
    program.add_node(lp.PyNode(print), label=label)
  job = Job('sebulba', program, placement, {}, {'run_dir': '/runs/x'})
  warnings = Kubernetes(image='x', volume='claim' if kept else '').check(job, dry_run=True)
  assert len(warnings) == (not kept)
  assert all("'learner' is placed on spot machines" in warning for warning in warnings)


def test_a_run_is_not_resumed_by_writing_manifests(tmp_path):
  process = launch('--launcher=k8s', f'--resume={tmp_path}')
  assert process.returncode == 2 and process.stderr.count('\n') == 1
  assert '--resume is not for --launcher=k8s' in process.stderr
  assert '--k8s_volume' in process.stderr


@pytest.fixture
def start(tmp_path, monkeypatch):
  """Returns a function that starts the pod whose end is that of a run; its node ends at once.

  Its arguments are the options of the run. It returns the exit code of the pod.
  """
  monkeypatch.setattr(pod, 'launch', lambda *_, started: 0)
  monkeypatch.setenv(pod.INDEX_VARIABLE, '0')
  module = registry.load('sebulba')

  def start(**given):
    config = configs.make_config(module, given | {'run_dir': str(tmp_path / 'run')})
    program = lp.Program('sebulba')
    program.add_node(lp.PyNode(print), label='monitor')
    placement = {'monitor': Resources()}
    fixed, values = changes.fixed(config), flatten(config)
    job = Job('sebulba', program, placement, given, values, fixed=fixed)
    return Pod(group='monitor', ends_program=True).start(job)

  return start


@pytest.fixture
def unlock(tmp_path):
  """Returns a function that removes the lock of the run directory, as the end of a pod does."""
  return (tmp_path / 'run' / '.lock').unlink


def test_a_pod_does_not_continue_another_run(start, unlock):
  """As after manifests of the same name for another environment."""
  for options in ({}, {'num_actors': 3}):
    assert start(env='catch', mlp_sizes=(7, 8), **options) == 0
    unlock()
  with pytest.raises(ValueError, match=r'--env=cartpole, but the run in .*/run has catch; give'):
    start(env='cartpole', mlp_sizes=(7, 8))


def test_a_pod_whose_predecessor_still_has_the_lock_may_be_replaced(start, unlock, capsys):
  """As on a shared volume for a while after a machine is lost."""
  assert start(env='catch') == 0
  assert start(env='catch') == 1
  assert 'is still running' in capsys.readouterr().err
  unlock()
  assert start(env='catch') == 0


@pytest.mark.parametrize('number', [errno.ENOSPC, errno.ESTALE, errno.EROFS])
def test_a_pod_whose_volume_fails_for_a_while_may_be_replaced(start, monkeypatch, number):
  def fail(*_):
    raise OSError(number, os.strerror(number))

  monkeypatch.setattr(os, 'fsync', fail)
  if number == errno.EROFS:
    with pytest.raises(ValueError, match='Read-only file system'):
      start(env='catch')
  else:
    assert start(env='catch') == 1


def test_a_record_that_cannot_be_read_for_a_while_is_tried_again(start, unlock, monkeypatch):
  def fail(path):
    raise ValueError(f'{path} cannot be read.') from OSError(errno.EIO, 'Input/output error')

  assert start(env='catch') == 0
  unlock()
  monkeypatch.setattr(run_directory, 'read_record', fail)
  assert start(env='catch') == 1
