"""The launcher inside a Slurm job: the module is run with RUN_DIR.

It replaces the batch script on the job's first host, and starts one job step per node. Order of the
start: a step on every host reports missing files and free ports; addresses are bound; the nodes start.
`lp.stop()` and the user signal it through the batch script.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from typing import IO, Any, NoReturn

from environments import entry
from launchers import binding, certificate, stop_requests, streams, supervise, terminal
from launchers.placement import NO_PROXY, Resources, environment_variables
from launchers.slurm import probe, requeue
from launchers.slurm.job import JOB_FILE, REFUSED, JobStopper, Submission
from launchers.slurm.planning import Plan
from launchers.slurm.step import STEP, SlurmNode
from launchers.stop_requests import StopRequests
from nodes.runtime import open_files
from rundir import evaluation_gap, files, run_end

_SLOW_SECONDS = 5.0


@dataclasses.dataclass(frozen=True)
class Hosts:
  """The allocated hosts of one component.

  Attributes:
    names: host names.
    job_id: job id of the component; the ids of its steps are job_id.number.
    options: srun options for a step that may use all of the job's resources on a host.
  """

  names: list[str]
  job_id: str
  options: list[str]

  def srun(self, hosts: Sequence[str], *further: str) -> list[str]:
    """Returns the first words of a command that runs a step with one task on each of `hosts`."""
    return [
      'srun',
      *self.options,
      f'--nodelist={",".join(hosts)}',
      f'--nodes={len(hosts)}',
      f'--ntasks={len(hosts)}',
      *further,
    ]


def _allocated(plan: Plan) -> list[Hosts]:
  """Returns the hosts of each component.

  Raises:
    ValueError: if their number differs from the plan.
  """
  result = []
  for k, component in enumerate(plan.components):
    suffix = f'_HET_GROUP_{k}' if len(plan.components) > 1 else ''
    options = [f'--het-group={k}'] if suffix else []
    # Every node may use all of the job's cores on its host: steps with fewer cores might be given the
    # same cores.
    options += [f'--cpus-per-task={component.cpus}', '--overlap', '--mem=0']
    options += ['--kill-on-bad-exit=0', '--mpi=none', '--export=ALL', '--quiet']
    node_list = os.environ[f'SLURM_JOB_NODELIST{suffix}']
    names = subprocess.run(
      ['scontrol', 'show', 'hostnames', node_list], check=True, capture_output=True, text=True
    ).stdout.split()
    if len(names) != component.hosts:
      raise ValueError(
        f'Slurm gave {len(names)} hosts where the job needs {component.hosts}; leave --nodes out of '
        '--slurm_options, --slurm_cpu_options and --slurm_accelerator_options.'
      )
    result.append(Hosts(names, os.environ[f'SLURM_JOB_ID{suffix}'], options))
  return result


def _probe(
  hosts: Sequence[Hosts], job: Submission, job_file: str, num_ports: int, asked: StopRequests
) -> dict[str, list[int]]:
  """Returns free ports of every host, which has the interpreters of the groups that it may run.

  Raises:
    ValueError: if a host lacks something; one sentence.
  """
  names = [name for component in hosts for name in component.names]
  first = probe.first_port(int(hosts[0].job_id))
  others: list[set[str]] = [set() for _ in hosts]
  for label, slots in job.plan.slots.items():
    for slot in slots:
      others[slot.component].add(job.placement[label].python)
  steps = [
    subprocess.Popen(
      [
        *c.srun(c.names, '--job-name=probe'),
        *probe.command(sys.executable, job_file, first, num_ports, names, sorted(pythons)),
      ],
      stdin=subprocess.DEVNULL,
      stdout=subprocess.PIPE,
      text=True,
      errors='replace',
    )
    for c, pythons in zip(hosts, others, strict=True)
  ]
  waits = f'waiting up to {probe.SECONDS:g} s for a reply of {", ".join(names)}'
  with streams.announced_if_slow(waits, _SLOW_SECONDS):
    ports = probe.ports(probe.output(steps, asked), sys.executable, job_file)
  silent = sorted(set(names) - ports.keys())
  if silent and not asked:
    raise ValueError(
      f'no step could be run on {", ".join(silent)} within {probe.SECONDS:g} s; add '
      f'--exclude={",".join(silent)} to --slurm_options.'
    )
  return ports


def run(job: Submission, run_dir: str, out: IO[str] | None = None) -> int:
  """Runs the program of a job to completion, as `launchers.local.local_mp.launch` does.

  Args:
    job: what was submitted.
    run_dir: the run directory, which contains the job file.
    out: receives reports of failures; None for stderr.

  Returns:
    The exit code, as for the local launcher.

  Raises:
    ValueError: if the hosts do not meet the job's needs; one sentence. No node has been started then.
  """
  open_files.allow_many()  # One has the heartbeats of each node.
  job_file = os.path.join(run_dir, JOB_FILE)
  title = job.program.name
  with (
    stop_requests.collected() as asked,
    terminal.shown(
      job.program, title, run_dir, job.node_output, slurm_job=os.environ['SLURM_JOB_ID']
    ) as callbacks,
    contextlib.ExitStack() as ended,
  ):
    hosts = _allocated(job.plan)
    print('hosts:', *(name for component in hosts for name in component.names), flush=True)
    if requeue.restarts():
      requeue.end_earlier_steps([component.job_id for component in hosts])
    num_ports = sum(len(n.addresses) for group in job.program.groups.values() for n in group)
    free = _probe(hosts, job, job_file, num_ports, asked)
    if asked:
      return stop_requests.EXIT_CODES[asked[0]]
    record: dict[str, dict[str, Any]] = {}

    def addresses(label: str, index: int, count: int) -> list[str]:
      slot = job.plan.slots[label][index]
      host = hosts[slot.component].names[slot.host]
      ports = [free[host].pop(0) for _ in range(count)]
      record[f'{label}/{index}'] = {'machine': host, 'ports': ports}
      return [f'{host}:{port}' for port in ports]

    os.environ.update(binding.run_token())  # Steps inherit it.
    stopper = JobStopper(hosts[0].job_id)
    with binding.starting():
      ended.enter_context(_certificate(os.path.dirname(job_file)))
      tasks = binding.prepare(job.program, addresses, stopper, os.path.dirname(job_file))
      record['launcher'] = {'machine': hosts[0].names[0]}
      files.write_json(os.path.join(run_dir, 'nodes.json'), record)
    callbacks.started()
    nodes: list[SlurmNode] = []
    try:
      with binding.starting():
        for task in tasks:
          component = hosts[job.plan.slots[task.label][task.index].component]
          machine = record[task.name]['machine']
          resources = job.placement[task.label]
          nodes.append(
            SlurmNode(
              f'{task.name} on {machine}',
              binding.log_path(run_dir, task),
              resources,
              node_command(task, resources, component, machine),
              component.job_id,
            )
          )
      return supervise.supervise(nodes, asked, out, callbacks, job.node_timeout)
    finally:
      for node in nodes:
        node.send(signal.SIGKILL)


@contextlib.contextmanager
def _certificate(directory: str) -> Iterator[None]:
  """Gives steps that start in the context a certificate, in a file that all hosts of the job have."""
  path = os.path.join(directory, 'certificate.pem')
  with files.replacing(path, mode=0o600) as file:
    file.write(certificate.new())
  os.environ[certificate.VARIABLE] = path  # Steps inherit it.
  try:
    yield
  finally:
    with contextlib.suppress(OSError):
      os.remove(path)


def node_command(
  task: binding.NodeTask, resources: Resources, component: Hosts, machine: str
) -> list[str]:
  """Returns the command that runs a node as a job step."""
  if resources.accelerator_kind == 'gpu':  # Slurm has chosen the GPUs and set their variables.
    resources = dataclasses.replace(resources, devices=())
  variables = environment_variables(resources)
  variables |= {**binding.import_variables(resources), 'PYTHONUNBUFFERED': '1'}
  return [
    *component.srun([machine], f'--job-name={task.label}-{task.index}'),
    # By default, a step gets all of the job's resources on its host.
    *([] if resources.accelerator else ['--gres=none']),
    *('sh', '-c', STEP, 'sh'),
    *(f'{name}={value}' for name, value in variables.items()),
    *entry.command(binding.interpreter_of(resources), 'launchers.node_entry', task.payload),
  ]


def main(argv: list[str]) -> NoReturn:
  """Runs the job of the run directory `argv[1]`, then ends this process with the exit code."""
  streams.ensure_streams()
  code = run_recorded(argv[1])
  streams.flush()
  os._exit(code)


def run_recorded(run_dir: str) -> int:
  """Runs the job of a run directory, and records and prints its end; returns the exit code."""
  os.environ.update(NO_PROXY)
  began = time.monotonic()
  try:
    with open(os.path.join(run_dir, JOB_FILE), 'rb') as f:
      job: Submission = pickle.load(f)
    if requeue.restarts():
      if run_end.has_ended(run_dir):  # While Slurm was about to requeue the job.
        streams.say(run_end.result(run_dir))
        return 0
      job = requeue.continued(job, run_dir)
    before = requeue.progress(run_dir)
    code = run(job, run_dir)
  except ValueError as error:
    print(f'error: {error}', file=sys.stderr)
    run_end.record_end(run_dir, REFUSED, time.monotonic() - began, requeue.restarts())
    return REFUSED
  if code == requeue.LIMIT_IS_NEAR and job.requeue and requeue.requeue(job, run_dir, before):
    return code
  run_end.record_end(run_dir, code, time.monotonic() - began, requeue.restarts())
  if code == 0 and (done := run_end.result(run_dir)):
    if note := evaluation_gap.remark(run_dir):
      streams.say(note, sys.stderr)
    streams.say(done)
  return code
