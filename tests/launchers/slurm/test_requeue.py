"""Jobs that Slurm requeues, on a real cluster of three hosts."""

import io
import json
import os
import pathlib
import re
import signal
import subprocess
import sys

import launchpad as lp
import pytest

from environments import entry
from launchers.engine import Job
from launchers.placement import Resources
from launchers.slurm import allocation, requeue, submit
from launchers.slurm.engine import Slurm
from launchers.slurm.job import Submission
from rundir import checkpoints, run_directory, run_end
from tests.launchers import nodes
from tests.launchers.slurm import small_cluster
from tests.waiting import DEADLINE, alive, wait_until

ROOT = pathlib.Path(__file__).parent.parent.parent.parent
NODE = ' '.join(entry.command(sys.executable, 'launchers.node_entry'))
_DRIVER = """
import sys
from launchers.engine import Job
from launchers.placement import Resources
from launchers.slurm import submit
from launchers.slurm.engine import Slurm
from tests.launchers import nodes
run_dir = sys.argv[1]
program = nodes.program(
  (nodes.Blocked, True, f'{run_dir}/pid'), (nodes.Stopper, False, f'{run_dir}/go')
)
where = {label: Resources() for label in program.groups}
where['echo'] = Resources(accelerator='tpu')
job = Job('test', program, where, {}, {'run_dir': run_dir})
sys.exit(submit.launch(job, Slurm(requeue=True, options=' '.join(sys.argv[2:]))))
"""


class _Front:
  """A front end in a process of its own, and the job that it follows."""

  def __init__(self, cluster, output, *command):
    self._cluster = cluster
    self._output = output
    with open(output, 'w') as f:
      self._process = subprocess.Popen(
        [sys.executable, *command],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=f,
        stderr=subprocess.STDOUT,
      )

  def wait(self, condition):
    return wait_until(condition, alive(self._process, self.said), DEADLINE, poll=0.05)

  def says(self, pattern):
    """Waits until the front end or its job has said something; returns the match."""
    return self.wait(lambda: re.search(pattern, self.said()))

  def said(self):
    return self._output.read_text()

  def wait_until_requeued(self):
    """Waits until the requeued job waits in the queue; returns its number."""
    job_id = self.says(r'job (\d+) has been requeued').group(1)
    show = ('scontrol', '--oneliner', 'show', 'job', job_id)
    self.wait(
      lambda: 'COMPLETING' not in (shown := self._cluster.run(*show)) and 'PENDING' in shown
    )
    return job_id

  def wait_until_gone(self):
    """Waits for the end of what starts the processes of a job on each host.

    The controller may hear of the end of a batch script when the job is in the queue again. It ignores
    that while the job waits there, for two minutes, and would take it for the end of the new start.
    """
    self.wait(
      lambda: not any(self._cluster.processes(h, 'slurmstepd') for h in small_cluster.HOSTS)
    )

  def start_again(self):
    """Waits until the job waits in the queue, and shortens its wait of two minutes."""
    job_id = self.wait_until_requeued()
    # Complains about a component that still runs, because its hosts were not lost. A host refuses a job
    # that starts in the second in which it was ended there: its credentials count whole seconds.
    command = ['scontrol', 'update', f'jobid={job_id}', 'starttime=now+2seconds']
    subprocess.run(command, env=self._cluster.environment, capture_output=True)
    self.says(rf'job {job_id}, restart \d')

  def end(self):
    """Waits for the end of the front end; returns its exit code."""
    return self._process.wait(timeout=DEADLINE)

  def close(self):
    self._process.kill()
    self._process.wait()
    if job := re.search(r'job (\d+);', self.said()):
      subprocess.run(['scancel', job.group(1)], env=self._cluster.environment, capture_output=True)


@pytest.fixture
def start(cluster, tmp_path):
  """Returns a function that starts a front end, which the end of the test ends."""
  fronts = []

  def start(*command):
    fronts.append(_Front(cluster, tmp_path / 'output', *command))
    return fronts[-1]

  yield start
  for front in fronts:
    front.close()


@pytest.mark.cluster
@pytest.mark.nightly  # Slurm takes half a minute to preempt a job and to start it again.
def test_a_preempted_run_resumes_from_its_newest_checkpoint_by_itself(cluster, start, tmp_path):
  run_dir, placement = tmp_path / 'run', tmp_path / 'placement.yaml'
  # There is no TPU behind the claim, so JAX stays on the CPU.
  placement.write_text(
    'inference_learner: {accelerator: tpu, num_devices: 4, env: {JAX_PLATFORMS: cpu}}\n'
  )
  options = '--num_steps=60000 --num_actors=2 --envs_per_actor=8 --batch_size=4 --eval_episodes=10'
  front = start(
    'launch.py',
    '--launcher=slurm',
    '--slurm_requeue',
    f'--placement={placement}',
    f'--run_dir={run_dir}',
    '--checkpoint_period=1',
    *options.split(),
  )
  front.wait(lambda: checkpoints.steps(checkpoints.directory(str(run_dir))))
  urgent = '--partition=urgent --nodelist=h2 --cpus-per-task=4 --output=/dev/null --wrap=true'
  cluster.run('sbatch', *urgent.split())
  front.start_again()
  assert front.end() == 0, front.said()
  step = re.search(
    r'restart 1: the run continues from its checkpoint of learner step (\S+)\n', front.said()
  )
  assert int(step.group(1).replace(',', '')) > 0
  record = run_directory.read_record(str(run_dir))
  assert len(record.commands) == 2 and record.config['resumes'] == 1
  assert json.loads((run_dir / 'summary.json').read_text())['actor_steps'] >= 60000
  assert front.said().count('\ndone: ') == 1


_JOB = 'JobId=4 JobState={} Reason={} Requeue=1 Restarts={} BatchFlag=1 ExitCode={}:{}\n'
_RUNS_AND_IS_REQUEUED = (
  _JOB.format('RUNNING', 'None', 0, 0, 0)
  + _JOB.format('PENDING', 'BeginTime', 1, 0, 0)
  + _JOB.format('RUNNING', 'None', 1, 0, 0)
)


@pytest.mark.parametrize(
  'end, recorded, code, said',
  [
    # Slurm ends the second start with the code of the first, or before it can say anything.
    (('FAILED', 'NonZeroExitCode', 1, 138, 0), None, 1, 'error: job 4 ended as FAILED.\n'),
    (('FAILED', 'None', 1, 0, 15), (143, 0), 1, 'error: job 4 ended as FAILED.\n'),
    # The second start has said why it ends.
    (('FAILED', 'NonZeroExitCode', 1, 1, 0), (1, 1), 1, ''),
    (('FAILED', 'NonZeroExitCode', 1, 130, 0), (130, 1), 130, ''),
    (('COMPLETED', 'None', 1, 0, 0), (0, 1), 0, ''),
    (('CANCELLED', 'None', 1, 0, 15), None, 143, 'job 4 has been cancelled\n'),
  ],
)
def test_a_front_never_ends_silently_unless_the_job_has_said_why(
  tmp_path, monkeypatch, end, recorded, code, said
):
  run_dir, commands, states = (tmp_path / name for name in ('run', 'bin', 'states'))
  run_dir.mkdir()
  commands.mkdir()
  states.write_text(_RUNS_AND_IS_REQUEUED + _JOB.format(*end))
  # Each question is answered by the next line.
  scontrol = f'head -n 1 {states}; sed -i 1d {states}'
  for name, script in (
    ('scontrol', scontrol),
    ('sbatch', f'echo "hosts: h1" > {run_dir}/slurm.log; echo 4'),
  ):
    (commands / name).write_text(f'#!/bin/sh\n{script}\n')
    (commands / name).chmod(0o755)
  monkeypatch.setenv('PATH', str(commands), prepend=os.pathsep)
  if recorded is not None:
    run_end.record_end(str(run_dir), recorded[0], 1.0, restarts=recorded[1])
  program, out = nodes.program(), io.StringIO()
  job = Job('test', program, {'echo': Resources()}, {}, {'run_dir': str(run_dir)})
  assert submit.launch(job, Slurm(requeue=True), out) == code
  followed = f'job 4 has been requeued (restart 1)\njob 4 is pending (BeginTime)\n{said}'
  assert out.getvalue().endswith(f'\nhosts: h1\n{followed}')


@pytest.mark.cluster
@pytest.mark.parametrize(
  'options',
  [
    [],
    # Slurm's own signal, up to two minutes after the start.
    pytest.param(['--time=2', '--signal=B:USR1@60'], marks=pytest.mark.nightly),
  ],
)
def test_a_job_near_its_time_limit_is_requeued_and_one_that_fails_is_not(
  cluster, start, tmp_path, options
):
  front = start('-c', _DRIVER, str(tmp_path), *options)
  job_id = front.says(r'job (\d+);').group(1)
  front.wait((tmp_path / 'pid').exists)
  if not options:  # As Slurm signals it before the time limit.
    cluster.run('scancel', '--batch', '--signal=USR1', job_id)
  front.wait_until_requeued()
  front.wait_until_gone()
  front.start_again()
  front.wait(lambda: len(cluster.processes('h1', NODE)) == 1)
  front.wait(lambda: int((tmp_path / 'pid').read_text()) in cluster.processes('h2', NODE))
  (server,) = cluster.processes('h1', NODE)
  os.kill(server, signal.SIGKILL)
  assert front.end() == 1, front.said()
  assert 'has been requeued (restart 2)' not in front.said()
  assert f'job {job_id} is near its time limit and is requeued\n' in front.said()


@pytest.mark.cluster
@pytest.mark.nightly
@pytest.mark.parametrize('host', ['h1', 'h2'])
def test_a_job_that_loses_a_host_goes_on_without_the_nodes_of_its_first_start(
  cluster, start, tmp_path, host
):
  front = start('-c', _DRIVER, str(tmp_path))
  front.wait((tmp_path / 'pid').exists)
  first = int((tmp_path / 'pid').read_text())
  cluster.lose_host(host)
  front.wait_until_requeued()
  cluster.start_host(host)
  front.wait(lambda: cluster.states()[host] in ('idle', 'mix', 'alloc'))
  front.start_again()
  front.wait(lambda: int((tmp_path / 'pid').read_text()) != first)
  front.wait(lambda: first not in cluster.processes('h2'))
  assert len(cluster.processes('h2', NODE)) == 2
  (tmp_path / 'go').touch()
  assert front.end() == 0, front.said()


def _submission(run_dir, remake):
  program = lp.Program('test')
  job = Job('test', program, {}, {}, {'run_dir': str(run_dir)}, False, 300.0, remake=remake)
  return Submission(program, {}, None, 300.0, 'files', requeue=True, job=job)


def test_a_job_that_wrote_no_checkpoint_before_its_time_limit_is_not_requeued(
  tmp_path, monkeypatch, capsys
):
  monkeypatch.setenv('SLURM_JOB_ID', '7')
  submission = _submission(tmp_path, lambda resumes: None)
  assert not requeue.requeue(submission, str(tmp_path), requeue.progress(str(tmp_path)))
  said = capsys.readouterr().err
  assert (
    said.startswith('error: job 7 has written no checkpoint within its time limit')
    and '--time' in said
  )


def test_a_run_that_had_ended_when_its_job_was_requeued_has_ended(tmp_path, monkeypatch, capsys):
  monkeypatch.setenv('SLURM_RESTART_COUNT', '1')
  (tmp_path / 'nodes').mkdir()
  (tmp_path / 'nodes' / 'job.pkl').write_bytes(b'\x80\x04N.')  # None
  run_end.record_end(str(tmp_path), 0, 1.0)
  assert allocation.run_recorded(str(tmp_path)) == 0
  assert capsys.readouterr().out == f'done: seconds=1.0 run_dir={tmp_path}\n'
