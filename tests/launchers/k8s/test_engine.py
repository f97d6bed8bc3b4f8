"""launch.py --launcher=k8s: the files that it writes and prints."""

import errno
import os
import re
import stat

import launchpad as lp
import pytest
import yaml

from agents.options import flatten
from launchers.engine import Job, TryAgain
from launchers.k8s import engine
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


def test_a_run_is_not_resumed_by_writing_manifests(tmp_path):
  process = launch('--launcher=k8s', f'--resume={tmp_path}')
  assert process.returncode == 2 and process.stderr.count('\n') == 1
  assert '--resume is not for --launcher=k8s' in process.stderr
  assert '--k8s_volume' in process.stderr


@pytest.fixture
def job(tmp_path, monkeypatch):
  """Returns a function from options to the job of the pod that owns the run directory."""
  monkeypatch.setattr(engine.Pod, 'owns_run_dir', True)
  module = registry.load('sebulba')

  def make_job(**given):
    config = configs.make_config(module, given | {'run_dir': str(tmp_path / 'run')})
    fixed = changes.fixed(config)
    return Job(
      'sebulba', lp.Program('sebulba'), {}, given, flatten(config), False, 1.0, fixed=fixed
    )

  return make_job


def test_a_pod_does_not_continue_another_run(job, tmp_path):
  """As after manifests of the same name for another environment."""

  def claim(wanted):
    """In a process of its own, so to speak."""
    engine.Pod().claim(wanted)
    run_directory.write_record(wanted.run_dir, wanted.name, dict(wanted.given), wanted.config)
    (tmp_path / 'run' / '.lock').unlink()

  claim(job(env='catch', mlp_sizes=(7, 8)))
  claim(job(env='catch', mlp_sizes=(7, 8), num_actors=3))
  with pytest.raises(ValueError, match=r'--env=cartpole, but the run in .*/run has catch; give'):
    claim(job(env='cartpole', mlp_sizes=(7, 8)))


def test_a_pod_whose_predecessor_still_has_the_lock_may_be_replaced(job, tmp_path, capsys):
  """As on a shared volume for a while after a machine is lost."""
  predecessor, successor = engine.Pod(), engine.Pod()
  run_directory.write_record(
    str(tmp_path / 'run'), 'sebulba', {}, predecessor.claim(job(env='catch')).config
  )
  with pytest.raises(TryAgain):
    successor.claim(job(env='catch'))
  assert 'is still running' in capsys.readouterr().err
  (tmp_path / 'run' / '.lock').unlink()
  successor.claim(job(env='catch'))


@pytest.mark.parametrize(
  'number, raised', [(errno.ENOSPC, TryAgain), (errno.ESTALE, TryAgain), (errno.EROFS, ValueError)]
)
def test_a_pod_whose_volume_fails_for_a_while_may_be_replaced(job, monkeypatch, number, raised):
  def fail(*_):
    raise OSError(number, os.strerror(number))

  pod, wanted = engine.Pod(), job(env='catch')
  pod.claim(wanted)
  monkeypatch.setattr(os, 'fsync', fail)
  with pytest.raises(raised):
    pod.record(wanted)


def test_a_record_that_cannot_be_read_for_a_while_is_tried_again(job, monkeypatch, tmp_path):
  (tmp_path / 'run').mkdir()
  run_directory.write_record(str(tmp_path / 'run'), 'sebulba', {}, job(env='catch').config)

  def fail(path):
    raise ValueError(f'{path} cannot be read.') from OSError(errno.EIO, 'Input/output error')

  monkeypatch.setattr(run_directory, 'read_record', fail)
  with pytest.raises(TryAgain):
    engine.Pod().claim(job(env='catch'))
