"""Reads the progress of a run from its directory alone; the run may be on any machine."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from launchers import bottleneck
from rundir import curves, graph_file, node_files, reading, run_directory, secrets, sweep_directory
from rundir.checkpoints import COUNTERS
from rundir.roles import ACTOR, EVALUATOR, LEARNER, MONITOR
from viewing.liveness import ENDED as ENDED
from viewing.liveness import RUNNING as RUNNING
from viewing.liveness import STOPPED as STOPPED
from viewing.liveness import Liveness
from viewing.node_log import NodeLog
from viewing.processes import Processes

# Bytes at the end of a log that hold more than the reports of a minute.
_TAIL, _ACTOR_TAIL = 1 << 16, 1 << 12
# Logs of one group that an update reads while the run is in progress; those of more nodes have turns.
_LOGS_AT_ONCE = 128


class Progress:
  """The progress of a run; `update` reads its directory."""

  def __init__(self, run_dir: str, with_curves: bool = True):
    """Reads a run for the first time.

    Args:
      run_dir: its directory.
      with_curves: whether to read the curves; if not, only the ends of the logs are read.

    Raises:
      ValueError: if it is not a run directory; one sentence.
    """
    run_directory.read_record(run_dir)  # The readers below expect a run directory.
    self.run_dir = run_dir
    self.name = sweep_directory.title(run_dir)
    self.training: list[tuple[float, ...]] = []
    self.evaluation: list[tuple[float, ...]] = []
    self.state = RUNNING
    self.status: dict[str, Any] | None = None
    self.processes = Processes(run_dir)
    self.logs: dict[str, NodeLog] = {}
    self._means: dict[str, dict[str, float]] = {}
    self._reads = 0
    self._with_curves = with_curves
    self._seen: tuple[Any, ...] = ()
    self._first: dict[str, tuple[float, ...]] = {}
    self._liveness = Liveness(run_dir)
    self.update()

  def update(self) -> None:
    """Reads the changes in the directory.

    Sets `state` to ENDED, RUNNING or STOPPED. Sets `status` in the format of `nodes.monitor`, None
    before the first measurement. Sets `training` and `evaluation` in the format of `rundir.curves`. In a
    run in progress with thousands of actors, it reads the logs of some of them, and of others the next
    time.

    Raises:
      ValueError: if the directory is no longer a run directory; one sentence.
    """
    record = run_directory.read_record(self.run_dir)
    self.program, self.config = record.program, record.config
    self._liveness.update()
    self.state = self._liveness.state
    seen = (self._liveness.written, self.state)
    if seen != self._seen:
      self._read()
    self._seen = seen

  @property
  def reports(self) -> bool:
    """Whether the program has our monitor, so that it reports a status."""
    groups = graph_file.read(self.run_dir).groups
    return not groups or any(MONITOR in group.roles for group in groups)

  def _read(self) -> None:
    self.processes.update()
    graph = graph_file.read(self.run_dir)
    paths = node_files.find(self.run_dir, node_files.CSV)
    for node in self._turn(paths):
      if node not in self.logs:
        roles = graph.roles(node)
        series = curves.series(roles) if self._with_curves else ()
        only_acts = ACTOR in roles and LEARNER not in roles
        self.logs[node] = NodeLog(paths[node], series, _ACTOR_TAIL if only_acts else _TAIL)
      self.logs[node].update()
      self._means[node] = self.logs[node].recent.means()
    logs = {node: log for node, log in self.logs.items() if 'seconds' in log.latest}
    if not logs:
      return
    latest = {node: log.latest for node, log in logs.items()}
    means = {node: self._means[node] for node in logs}
    cores = self.processes.cores_used(), self.processes.cores_idle()
    newest = max(latest.values(), key=lambda values: values['seconds'])
    learner = next((n for n, v in latest.items() if 'actor_steps_per_second' in v), '')
    if learner and learner not in self._first:
      self._first[learner] = logs[learner].first('seconds', 'actor_steps') or ()
    first_second, first_steps = self._first.get(learner) or (newest['seconds'], 0.0)
    if self._with_curves:
      self.training = self._curve(LEARNER, [curves.TRAINING])
      self.evaluation = self._curve(EVALUATOR, curves.EVALUATION)
    num_steps: Any = self.config.get('num_steps')
    if not reading.is_number(num_steps) or not num_steps > 0:
      num_steps = math.inf  # An option of a user's own program may have this name.
    self.status = {
      'elapsed': newest['seconds'],
      'since_first_step': newest['seconds'] - first_second,
      'first_actor_steps': first_steps,
      'num_steps': num_steps,
      'counts': {name: newest.get(name, 0.0) for name in COUNTERS},
      'graph': graph,
      'latest': latest,
      'means': means,
      'verdict': bottleneck.of_program(means, self.config, graph, *cores),
      'waiting': {},
      'finished': self.state == ENDED,
      'problem': '',
      'restarts': run_directory.restarts(self.run_dir),
    }

  def _turn(self, nodes: Iterable[str]) -> list[str]:
    """Returns the nodes whose logs are read now: all that are new, and of large groups some others."""
    turn = []
    for members in node_files.by_group(nodes).values():
      if len(members) > _LOGS_AT_ONCE and self.state == RUNNING:
        begin = self._reads * _LOGS_AT_ONCE % len(members)
        known = members[begin : begin + _LOGS_AT_ONCE]
        members = [*known, *(node for node in members if node not in self.logs)]
      turn += members
    self._reads += 1
    return list(dict.fromkeys(turn))

  def _curve(self, role: str, series: Sequence[tuple[str, ...]]) -> list[tuple[float, ...]]:
    """Returns the rows of the first node of a role that has some, by the first of these series."""
    logs = [self.logs[node] for node in curves.nodes(self.run_dir, role) if node in self.logs]
    rows = (log.series.get(columns, []) for log in logs for columns in series)
    return next(filter(None, rows), [])


def differences(runs: list[Progress]) -> dict[str, list[str]]:
  """Returns the options, common to all runs, that differ between them, with the value in every run.

  The program comes first.
  """
  rows = {'program': [run.program for run in runs]}
  for name in sorted(set.intersection(*(set(run.config) for run in runs))):
    rows[name] = [secrets.shown(name, run.config[name]) for run in runs]
  return {name: row for name, row in rows.items() if len(set(row)) > 1 and name != 'run_dir'}
