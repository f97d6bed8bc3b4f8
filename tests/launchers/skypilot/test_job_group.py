"""The job group that --launcher=skypilot writes."""

import json
import os
import shutil
import stat
import subprocess

import launchpad as lp
import pytest
import yaml

from launchers.engine import Job
from launchers.engines import SkyPilot
from launchers.placement import Resources
from launchers.skypilot import job_group
from tests.launchers import nodes
from tests.programs_under_test import ROOT, launch, run_main

RUN = job_group.Run(
  'demo', 'image:1', ['python', 'launch.py'], 'gcp', 'claim', '0badcafe', 'c2VjcmV0'
)
MONITOR = Resources(cpus=0, with_launcher=True)


def _tasks(placement, run=RUN):
  program = lp.Program('mine')
  for label in placement:
    with program.group(label):
      for _ in range(2 if label == 'actor' else 1):
        program.add_node(lp.PyClassNode(nodes.Crasher, ''))
  header, *tasks = job_group.documents(program, placement, run)
  return header, {one['name']: one for one in tasks}


def test_each_group_is_a_task_and_each_node_a_machine():
  learner = Resources(
    accelerator='gpu', num_devices=8, resources={'H100': 8}, cpus=7.5, memory_gb=30
  )
  actor = Resources(
    cpus=2, uses_run_dir=False, provisioning='spot', restart='on_failure', max_restarts=7
  )
  header, tasks = _tasks({'monitor': MONITOR, 'inference_learner': learner, 'actor': actor})
  assert header == {'name': 'demo', 'execution': 'parallel', 'primary_tasks': ['monitor']}
  assert [tasks[name]['num_nodes'] for name in tasks] == [1, 1, 2]
  assert tasks['inference-learner']['resources'] == {
    'infra': 'gcp',
    'image_id': 'docker:image:1',
    'cpus': '8+',
    'memory': '30+',
    'accelerators': {'H100': 8},
  }
  assert tasks['actor']['resources'] == {
    'infra': 'gcp',
    'image_id': 'docker:image:1',
    'cpus': '2+',
    'use_spot': True,
  }
  assert [name for name, one in tasks.items() if 'volumes' in one] == [
    'monitor',
    'inference-learner',
  ]
  assert tasks['monitor']['volumes'] == {'/runs': 'claim'}
  assert tasks['actor']['run'] == (
    'cd /launchpod && exec python launch.py --task_group=actor --task_ending=monitor '
    "'--task_hosts={job}-{index}.demo' --task_port=8900 --task_restarts=7\n"
  )
  for one in tasks.values():
    assert one['secrets'] == {'LAUNCHPOD_CERTIFICATE': 'c2VjcmV0'}
    assert one['envs']['LAUNCHPOD_RUN'] == '0badcafe'
  assert tasks['actor']['envs']['JAX_PLATFORMS'] == 'cpu'
  assert tasks['inference-learner']['envs']['JAX_PLATFORMS'] == 'cuda,cpu'


@pytest.mark.parametrize(
  'resources, words',
  [
    (Resources(accelerator='gpu'), ['needs a GPU', '{H100: 8}']),
    (Resources(accelerator='tpu-v6e'), ['needs a TPU', '{tpu-v6e-8: 1}']),
    (Resources(accelerator='gpu', num_devices=2, resources={'H100': 1}), ['2 GPU', '{H100: 1}']),
    (Resources(resources={'H100': 1}), ['no accelerator; set both']),
    (Resources(labels={'pool': 'a'}), ['SkyPilot has no labels']),
    (Resources(priority_class='low'), ['SkyPilot has no priority_class']),
    (Resources(provisioning='flex_start'), ['SkyPilot has no provisioning: flex_start']),
    (Resources(env={'A.B': 'x'}), ["'A.B'"]),
    (Resources(with_launcher=True), ['with_launcher to one node']),
  ],
)
def test_what_skypilot_lacks_is_rejected_in_one_sentence(resources, words):
  with pytest.raises(ValueError) as error:
    _tasks({'monitor': MONITOR, 'actor': resources})
  for word in words:
    assert word in str(error.value)


def test_a_program_needs_a_node_whose_end_is_its_own():
  with pytest.raises(ValueError, match='place its group with_launcher'):
    _tasks({'actor': Resources()})


@pytest.mark.parametrize(
  'words, expected',
  [
    (['--output=y'], '--launcher=skypilot needs --image'),
    (['--image=x'], '--launcher=skypilot needs --output'),
    (
      ['--image=IM AGE;rm', '--output=y'],
      '--image=IM AGE;rm must be the name of a container image',
    ),
    (['--image=x', '--output=/proc/x'], '--output=/proc/x cannot be written'),
    (['--image=x', '--output=y', '--sky_name=A b'], '--sky_name=A b must be lower-case'),
    (['--image=x', '--output=y', '--run_dir=z'], '--run_dir is chosen'),
    (['--image=x', '--output=y', '--k8s_queue=z'], '--k8s_queue is for --launcher=k8s'),
  ],
)
def test_a_launch_that_cannot_be_written_is_rejected(
  words, expected, tmp_path, monkeypatch, capsys
):
  monkeypatch.chdir(tmp_path)
  assert run_main('--launcher=skypilot', *words) == 2
  assert expected in capsys.readouterr().err
  assert os.listdir(tmp_path) == []


@pytest.mark.parametrize('volume', ['', 'claim'])
def test_a_learner_on_spot_machines_without_a_volume_is_warned_about(volume):
  spot = Resources(provisioning='spot', with_launcher=True)
  placement = {'learner': spot, 'actor': Resources(provisioning='spot', uses_run_dir=False)}
  program = lp.Program('mine')
  for label in placement:
    program.add_node(lp.PyNode(print), label=label)
  job = Job('sebulba', program, placement, {}, {'run_dir': '/runs/x'})
  warnings = SkyPilot(image='x', volume=volume).check(job, dry_run=True)
  assert len(warnings) == (not volume)
  assert all("'learner' is placed on spot" in warning for warning in warnings)


@pytest.mark.slow
def test_launch_writes_a_file_that_only_its_owner_reads_and_a_preview_has_no_key(tmp_path):
  output = tmp_path / 'run.sky.yaml'
  flags = (
    '--launcher=skypilot',
    '--image=registry/image:1',
    '--num_actors=2',
    '--sky_volume=claim',
  )
  process = launch(*flags, f'--output={output}')
  assert process.returncode == 0, process.stderr
  assert stat.S_IMODE(output.stat().st_mode) == 0o600
  header, *tasks = yaml.safe_load_all(output.read_text())
  name = header['name']
  assert name.startswith('sebulba-catch-') and header['primary_tasks'] == ['monitor']
  (secret,) = {one['secrets']['LAUNCHPOD_CERTIFICATE'] for one in tasks}
  assert len(secret) > 500 and secret not in process.stdout + process.stderr
  for one in tasks:
    assert '--launcher=task' in one['run'] and f'--run_dir=/runs/{name}' in one['run']
    assert '--output' not in one['run'] and one['run'].startswith('cd /launchpod && exec ')
  assert f'sky jobs launch {output}\n' in process.stdout

  graph, _, rest = launch(*flags, '--dry_run').stdout.partition('\n# Written by launch.py')
  assert 'program sebulba\n' in graph and 'asked of the cluster' in graph
  _, *tasks = yaml.safe_load_all(rest.partition('\n')[2])
  assert {one['secrets']['LAUNCHPOD_CERTIFICATE'] for one in tasks} == {'***'}


# Of `make skypilot`, which has SkyPilot beside nothing of ours.
SKYPILOT = ROOT / '.venv-skypilot' / 'bin' / 'python'
_LOAD = """
import json, sys
from sky.utils import dag_utils
dag = dag_utils.load_job_group_from_yaml(sys.argv[1])
print(json.dumps([dag.name, dag.primary_tasks, dag.is_job_group(), [
  [t.name, t.num_nodes, t.envs, {k: str(v) for k, v in t.secrets.items()}, t.run,
   [r.to_yaml_config() for r in t.resources]] for t in dag.tasks]]))
"""


def _loaded(path):
  return subprocess.run(
    [SKYPILOT, '-c', _LOAD, str(path)],
    capture_output=True,
    text=True,
    env={**os.environ, 'SKYPILOT_DISABLE_USAGE_COLLECTION': '1', 'HOME': str(path.parent)},
  )


@pytest.mark.nightly
@pytest.mark.skipif(not shutil.which(SKYPILOT), reason='SkyPilot is not installed: make skypilot')
def test_skypilots_own_loader_accepts_the_job_group_and_finds_what_is_wrong(tmp_path):
  learner = Resources(accelerator='gpu', num_devices=8, resources={'H100': 8}, memory_gb=30)
  actor = Resources(cpus=2, env={'A': "$HOME '$$' \\"}, provisioning='spot', uses_run_dir=False)
  scorer = Resources(accelerator='tpu-v6e', num_devices=8, resources={'tpu-v6e-8': 1})
  placement = {'monitor': MONITOR, 'learner': learner, 'scorer': scorer, 'actor': actor}
  header, tasks = _tasks(placement)
  documents = [header, *tasks.values()]
  path = tmp_path / 'run.sky.yaml'
  path.write_text(yaml.safe_dump_all(documents, sort_keys=False, explicit_start=True))
  done = _loaded(path)
  assert done.returncode == 0, done.stderr
  name, primary, is_group, found = json.loads(done.stdout.splitlines()[-1])
  assert (name, primary, is_group) == ('demo', ['monitor'], True)
  for (task, size, envs, _, run, (machine,)), one in zip(found, tasks.values(), strict=True):
    assert (task, size, run.strip()) == (one['name'], one['num_nodes'], one['run'].strip())
    assert one['envs'].items() <= envs.items()
    assert 'docker:image:1' in str(machine['image_id']) and machine['infra'] == 'gcp'
    assert machine.get('use_spot', False) is ('use_spot' in one['resources'])
  misspelt = [header, {**documents[1], 'resources': {'cpu': '2+'}}, *documents[2:]]
  unknown = [header | {'primary_tasks': ['monito']}, *documents[1:]]
  for wrong, word in ((misspelt, 'cpu'), (unknown, 'monito')):
    path.write_text(yaml.safe_dump_all(wrong, explicit_start=True))
    done = _loaded(path)
    assert done.returncode and word in done.stderr
