"""The directory of a run of many hours with many actors, as a fixture."""

import csv
import io
import json
import os

from agents.options import flatten
from agents.options import make as make_config
from launchers.graph import flow
from programs import sebulba
from rundir import graph_file, node_files, run_directory

BEGAN = 1_700_000_000.0
_STEP = 30  # Seconds between the rows of processes.csv.


def make(run_dir, hours, num_actors, process_hours=None):
  """Makes it. All actors' CSVs are one file with several names.

  Args:
    run_dir: path.
    hours: length of the run.
    num_actors: number of actors.
    process_hours: hours that processes.csv covers; None for all.
  """
  run_dir = str(run_dir)
  config = make_config(
    sebulba.Config, num_steps=10**10, run_dir=run_dir, num_actors=num_actors
  ).resolve()
  run_directory.create(run_dir)
  run_directory.write_record(run_dir, 'sebulba', {}, flatten(config))
  graph = flow.graph(sebulba.make_program(config), sebulba.placement(config))
  graph_file.write(run_dir, graph)
  os.makedirs(node_files.directory(run_dir))
  seconds = int(3600 * hours)
  _write(run_dir, 'inference_learner/0', (_learner_row(t) for t in range(1, seconds)))
  _write(run_dir, 'evaluator/0', (_evaluator_row(t) for t in range(600, seconds, 600)))
  _write(run_dir, 'actor/0', (_actor_row(t) for t in range(2, seconds, 2)))
  first = node_files.csv_path(run_dir, 'actor/0')
  for i in range(1, num_actors):
    os.link(first, node_files.csv_path(run_dir, f'actor/{i}'))
  nodes = [f'{group.name}/{i}' for group in graph.groups for i in range(group.nodes)]
  covered = int(3600 * process_hours) if process_hours else seconds
  with open(run_directory.processes_path(run_dir), 'w') as f:
    f.write('time,node,doing,seconds,memory_mib,cpu_seconds,open_files,threads,host\n')
    for t in range(seconds - covered, seconds, _STEP):
      row = f'playing,1.0,41.5,{0.4 * t:.2f},10,7'
      f.writelines(
        f'{BEGAN + t:.1f},{node},{row},worker{k // 50}\n' for k, node in enumerate(nodes)
      )
  for t in range(1800, seconds, 3600):
    with open(os.path.join(run_dir, 'restarts.csv'), 'a') as f:
      f.write(f'{BEGAN + t:.1f},actor/{t % num_actors}\n')
  return run_dir


def _learner_row(t):
  figures = {f'metric_{i}': 0.1 * i for i in range(20)}  # As wide as a real one.
  counts = {'actor_steps': 9e4 * t, 'environment_frames': 9e4 * t, 'learner_steps': 10 * t}
  return {
    'seconds': t,
    'time': BEGAN + t,
    'actor_steps_per_second': 9e4,
    'learner_steps_per_second': 10.0,
    'learner_waiting_share': 0.02,
    'inference_busy_share': 0.7,
    'inference_batch_fill': 0.9,
    'deferred_requests': 1800,
    'replay_size': 31.0,
    'unrolls_inserted': 160 * t,
    'episode_return': t / 1e4,
    **counts,
    **figures,
  }


def _evaluator_row(t):
  return {
    'seconds': t,
    'time': BEGAN + t,
    'environment_frames': 9e4 * t,
    'evaluator_return': t / 1e4,
    'evaluator_return_stderr': 0.1,
  }


def _actor_row(t):
  counts = {'actor_steps': 9e4 * t, 'environment_frames': 9e4 * t, 'learner_steps': 10 * t}
  return {'seconds': t, 'time': BEGAN + t, 'stepping_share': 0.2, 'waiting_share': 0.8, **counts}


def _write(run_dir, node, rows):
  text, columns = io.StringIO(), None
  for row in rows:
    if columns is None:
      columns = csv.DictWriter(text, list(row), lineterminator='\n')
      columns.writeheader()
    columns.writerow(row)
  with open(node_files.csv_path(run_dir, node), 'w') as f:
    f.write(text.getvalue())


def state_bytes(state):
  """Returns the size of a state on the way to the page."""
  return len(json.dumps(state))
