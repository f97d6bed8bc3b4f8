"""Run directories that grow, for tests of exports."""

from __future__ import annotations

import json
import os

from agents.options import flatten, make
from programs import sebulba
from rundir import node_files, run_directory, run_end, videos
from rundir.csv_file import CsvWriter

COUNTERS = ('actor_steps', 'environment_frames', 'learner_steps')


class GrowingRun:
  """The directory of a run of Sebulba; the methods write what a running program does."""

  def __init__(self, path, **options):
    self.path = str(path)
    config = make(sebulba.Config, num_steps=1000, run_dir=self.path, **options).resolve()
    run_directory.create(self.path)
    run_directory.write_record(self.path, 'sebulba', options, flatten(config))
    os.remove(path / '.lock')  # This process holds it, and no launcher does.
    self._tables = {}

  def report(self, node, seconds, **values):
    """Adds a row of a node."""
    if node not in self._tables:
      self._tables[node] = CsvWriter(node_files.csv_path(self.path, node))
    counters = dict.fromkeys(COUNTERS, 10 * seconds)
    self._tables[node].write({'seconds': seconds, 'time': 1e9 + seconds} | counters | values)

  def process(self, node, seconds, cpu_seconds, memory_mib=100.0):
    """Adds a row of a process."""
    path = run_directory.processes_path(self.path)
    with open(path, 'a') as f:
      if not f.tell():
        f.write('time,node,doing,seconds,memory_mib,cpu_seconds,open_files,threads,host\r\n')
      f.write(f'{1e9 + seconds},{node},playing,1.0,{memory_mib},{cpu_seconds},5,6,here\r\n')

  def video(self, actor_steps, content=b'GIF89a\x01\0\x01\0'):
    """Adds a video."""
    videos.write(self.path, actor_steps, 0, content, kept=100)

  def write(self, name, content):
    """Writes a file of the run."""
    with open(os.path.join(self.path, name), 'w') as f:
      f.write(content)

  def end(self, code=0, finished=True):
    """Ends the run."""
    if finished:
      self.write('summary.json', json.dumps({'evaluator_return': 0.5, 'actor_steps': 90}))
    run_end.record_end(self.path, code, seconds=1.0)
