"""The monitor: records every node's measurements in the run directory and tracks progress."""

from __future__ import annotations

import contextlib
import math
import os
import random
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from absl import logging

from nodes.runtime import activity, full_disk, lifecycle, rpc
from rundir import curves, files, node_files, reading, run_end
from rundir.checkpoints import COUNTERS
from rundir.recorder import Recorder

# A node is silent after so long without a report, and three times as long as it took for the last one.
_SILENT_SECONDS = 10.0
_SILENCE_CHECK_SECONDS = 1.0
_RATE = '_per_second'
_LOSSES_KEPT = 100
# Of all nodes of one group together. It costs about a twentieth of a core.
_REPORTS_PER_SECOND = 200
# Of a group that does not learn, in `status`, which the launcher asks for twice a second.
_NODES_IN_STATUS = 128


class Monitor:
  """Logs what nodes report and ends the program after the final evaluation. All methods are RPCs.

  Reports are absolute, so a duplicate report changes nothing. For each node the monitor writes
  `logs/<node>.csv` and TensorBoard scalars `<node's group>/<name>`; their time axis is environment
  frames. A row has two times: `seconds` of the run, and `time` in seconds since 1970. The logged
  counters are program totals: actor steps and frames are summed over inference-learners. Learner
  steps are common to all replicas; of peers they are the maximum.

  The counters of a node only grow, until it restarts: then they are those that it begins with, and what
  is lost is noted. A restarted monitor logs the last counters until it has heard as much from the
  learners. The rates of a node that falls silent while the program trains become 0.

  The reply to a report says when the next one is welcome, so that thousands of actors cost no more than
  some hundreds.
  """

  def __init__(
    self,
    run_dir: str,
    num_steps: int,
    evaluators: Sequence[str],
    num_learners: int = 1,
    videos_kept: int = 5,
  ):
    """Opens the logs.

    Args:
      run_dir: an existing directory.
      num_steps: actor steps of the whole run, for progress.
      evaluators: names of the nodes whose final evaluation ends the program.
      num_learners: number of nodes that call `report_training_finished`, inference nodes included.
      videos_kept: number of videos to keep, the newest.
    """
    self._run_dir = run_dir
    self._num_steps = num_steps
    self._evaluators = evaluators
    self._num_learners = num_learners
    # A restarted monitor continues from the end of its logs, since the wall clock may be set back.
    last = curves.last_row(run_dir, *COUNTERS)
    self._started = time.monotonic() - last.pop('seconds')
    self._first_step = 0.0
    self._first_count = 0.0
    self._lock = threading.Lock()
    self._evaluating = threading.Lock()
    self._latest: dict[str, dict[str, float]] = {}
    self._reported: dict[str, tuple[float, float]] = {}  # When, and how long after the one before.
    self._restarts_of: dict[str, int] = {}
    self._losses: list[str] = []
    self._counts_of: dict[str, dict[str, float]] = {}
    # The sums of the counters over all nodes, since each report of thousands of nodes needs them.
    self._sums = dict.fromkeys(COUNTERS, 0.0)
    self._most_learner_steps = 0.0
    # What earlier incarnations have logged, until the learners have reported as much to this one.
    self._logged = last if lifecycle.restart_count() else {}
    self._group_sizes: dict[str, int] = {}  # Nodes of each group that have reported.
    self._pauses = random.Random()  # Of its own, seeded by the system.
    self._final: dict[str, dict[str, float]] = {}
    self._recorder = Recorder(run_dir, videos_kept)
    self._evaluations = self._earlier_evaluations()
    self._problem = ''
    self._training_finished = threading.Event()
    self._finished = threading.Event()

  def report(self, node: str, values: Mapping[str, float], restarts: int = 0) -> float:
    """Records a node's measurements without waiting for the disk.

    Args:
      node: such as 'actor/3'.
      values: by name; a value named like a counter updates that counter.
      restarts: of the node in this launch.

    Returns:
      Seconds until the node's next report, at least. They grow with its group, and vary by a quarter,
      so that nodes which have begun together do not report together for ever.
    """
    with self._lock:
      now = time.monotonic()
      if 'actor_steps' in values and node not in self._latest:
        self._first_step = self._first_step or now
        self._first_count += values['actor_steps']
      self._note_restart(node, values, restarts)
      before = self._reported.get(node)
      self._reported[node] = now, now - before[0] if before else math.inf
      group = node_files.group(node)
      if before is None:
        self._group_sizes[group] = self._group_sizes.get(group, 0) + 1
      self._record(node, values)
      return self._group_sizes[group] / _REPORTS_PER_SECOND * self._pauses.uniform(0.75, 1.25)

  def count(self, node: str, counts: Mapping[str, float], restarts: int = 0) -> None:
    """Updates a node's counters before its first report, such as those of a checkpoint.

    Args:
      node: such as 'learner/0'.
      counts: by name.
      restarts: of the node in this launch.
    """
    with self._lock:
      self._note_restart(node, counts, restarts)
      self._count(node, counts)

  def video(self, actor_steps: int, gif: bytes) -> None:
    """Records a video of the policy in `videos/` and for TensorBoard, without waiting for the disk.

    Args:
      actor_steps: of the program at that time; it names the file.
      gif: the video.
    """
    with self._lock:
      frames = int(self._counts()['environment_frames'])
    self._recorder.put_video(actor_steps, frames, gif)

  def flush(self, timeout: float = 60.0) -> bool:
    """Waits until all earlier reports are written or dropped.

    Args:
      timeout: maximum seconds to wait.

    Returns:
      Whether they are, so that `rundir.curves.read` and TensorBoard see the written ones.
    """
    return self._recorder.flush(timeout)

  def finished(self) -> bool:
    """Returns whether training has finished."""
    return self._training_finished.is_set()

  def progress(self) -> dict[str, Any]:
    """Returns `actor_steps` so far and whether training has `finished`."""
    with self._lock:
      return {
        'actor_steps': self._counts()['actor_steps'],
        'finished': self._training_finished.is_set(),
      }

  def status(self) -> dict[str, Any]:
    """Returns the live view's data: counters, times and the latest value of each measurement.

    `problem` says in one sentence why measurements are being dropped, or is ''. `lost_rows` counts the
    rows that were not fully written since this monitor started. `losses` has a sentence about each
    restart of a node that has lost steps, the last hundred. `latest` has every node that learns, and of
    each group the first 128 others, since thousands of actors measure alike.
    """
    with self._lock:
      return {
        'elapsed': time.monotonic() - self._started,
        'since_first_step': time.monotonic() - self._first_step if self._first_step else 0.0,
        'first_actor_steps': self._first_count,
        'num_steps': self._num_steps,
        'counts': self._counts(),
        'latest': self._shown(),
        'finished': self._training_finished.is_set(),
        'problem': self._recorder.problem or self._problem,
        'lost_rows': self._recorder.lost,
        'losses': list(self._losses),
      }

  def report_training_finished(self, node: str, values: Mapping[str, float]) -> None:
    """Records a learner's final counters and its other entries in the summary.

    Once all `num_learners` nodes have reported, training is finished. The program then ends, with
    evaluators only after the final evaluation of each.

    Args:
      node: such as 'inference_learner/0'.
      values: by name; empty for a node that does not learn.
    """
    with self._lock:
      self._count(node, values)
      self._final[node] = dict(values)
      if len(self._final) < self._num_learners:
        return
    self._training_finished.set()
    if self._evaluations.keys() >= set(self._evaluators):
      self._finished.set()

  def final_evaluation(self, node: str, values: Mapping[str, float]) -> None:
    """Records an evaluation of the final parameters; that of the last evaluator ends the program.

    It is on disk before this returns, since the evaluator does not send it again to a restarted
    monitor.

    Args:
      node: such as 'evaluator/0'.
      values: by name.

    Raises:
      RuntimeError: `rpc.retry_later_error()` while it cannot be written, so that the evaluator retries.
    """
    with self._evaluating:  # Evaluators may end at the same time.
      if node not in self._evaluations:
        evaluations = {**self._evaluations, node: dict(values)}
        record = {'num_steps': self._num_steps, 'evaluations': evaluations}
        try:
          files.write_json(os.path.join(self._run_dir, run_end.FINAL_EVALUATION), record)
        except OSError as error:
          self._problem = f'{self._run_dir} cannot take the final evaluation: {error.strerror}'
          raise rpc.retry_later_error() from error
        self._problem = ''
        self._evaluations = evaluations
        self.report(node, values)
      if self._evaluations.keys() >= set(self._evaluators):
        self._finished.set()

  def run(self) -> None:
    """Waits for the end of training, writes the summary and the curves, and stops the program."""
    stop = lifecycle.stop_event()
    check_at = 0.0
    with self._recorder:
      while not stop.wait(0.1) and not self._finished.is_set():
        activity.mark(activity.SERVING)
        if not self._training_finished.is_set() and time.monotonic() >= check_at:
          check_at = time.monotonic() + _SILENCE_CHECK_SECONDS
          self._clear_silent_rates()
      activity.mark(activity.WRITING_CHECKPOINT)
    if self._finished.is_set():
      with contextlib.suppress(lifecycle.Stopped):
        full_disk.write_when_there_is_room(self._write_summary, stop.is_set, 'the summary')
    try:
      curves.draw(self._run_dir)
    except OSError as error:
      logging.error('could not draw the learning curves: %s', error)
    if self._finished.is_set():
      lifecycle.stop_program()

  def _record(self, node: str, values: Mapping[str, float]) -> None:
    """Takes over a node's measurements, and queues them for its log."""
    finite = {name: value for name, value in values.items() if math.isfinite(value)}
    self._latest.setdefault(node, {}).update(finite)
    counts = self._count(node, values)
    times = {'seconds': time.monotonic() - self._started, 'time': round(time.time(), 1)}
    row = times | dict(values) | counts
    scalars = finite | {n: counts[n] for n in COUNTERS if n in finite}
    tagged = {f'{node_files.group(node)}/{name}': value for name, value in scalars.items()}
    self._recorder.put(node, row, int(counts['environment_frames']), tagged)

  def _note_restart(self, node: str, values: Mapping[str, float], restarts: int) -> None:
    """At the first call of a restarted node, replaces its counters and notes what it has lost."""
    if restarts <= self._restarts_of.get(node, 0):
      return
    self._restarts_of[node] = restarts
    before = self._forget_counts(node)
    if not any(before.values()):
      return
    self._logged = {}
    steps = self._count(node, values)['actor_steps']
    self._first_step, self._first_count = time.monotonic(), steps
    self._clear_rates(node)
    after = self._counts_of[node]
    lost = before['actor_steps'] - after['actor_steps']
    if lost <= 0:
      return
    if any(after.values()):
      loss = f'{node} continues at {after["actor_steps"]:,.0f} actor steps: {lost:,.0f} are lost'
    else:
      loss = (
        f'{node} has no checkpoint yet: training starts from scratch, {lost:,.0f} steps are lost'
      )
    logging.warning('%s', loss)
    self._losses = [*self._losses, loss][-_LOSSES_KEPT:]

  def _clear_silent_rates(self) -> None:
    """Clears the rates of nodes that are silent, such as one that has died."""
    with self._lock:
      now = time.monotonic()
      for node, (reported, interval) in self._reported.items():
        if now - reported > max(_SILENT_SECONDS, 3 * interval):
          self._clear_rates(node)

  def _clear_rates(self, node: str) -> None:
    """Records a node's rates as 0, if they are not."""
    latest = self._latest.get(node, {})
    if rates := {name: 0.0 for name, rate in latest.items() if name.endswith(_RATE) and rate}:
      self._record(node, rates)

  def _count(self, node: str, values: Mapping[str, float]) -> dict[str, float]:
    """Updates a node's counters, which never decrease; returns the program's counters."""
    counts = self._counts_of.setdefault(node, dict.fromkeys(COUNTERS, 0.0))
    for name in COUNTERS:
      grown = values.get(name, 0.0) - counts[name]
      if grown > 0:
        counts[name] += grown
        self._sums[name] += grown
    self._most_learner_steps = max(self._most_learner_steps, counts['learner_steps'])
    return self._counts()

  def _forget_counts(self, node: str) -> dict[str, float]:
    """Takes the counters of a node out of the program's; returns them, or {} if it had none."""
    before = self._counts_of.pop(node, {})
    for name, count in before.items():
      self._sums[name] -= count
    steps = (counts['learner_steps'] for counts in self._counts_of.values())
    self._most_learner_steps = max(steps, default=0.0)
    return before

  def _counts(self) -> dict[str, float]:
    """Returns the program's counters: learner steps are shared by all nodes, the others are sums."""
    counts = self._sums | {'learner_steps': self._most_learner_steps}
    if self._logged and all(counts[name] >= logged for name, logged in self._logged.items()):
      self._logged = {}
    return counts | {name: max(counts[name], logged) for name, logged in self._logged.items()}

  def _shown(self) -> dict[str, dict[str, float]]:
    """Returns the latest measurements of the nodes that `status` has."""
    shown: dict[str, dict[str, float]] = {}
    left = dict.fromkeys(self._group_sizes, _NODES_IN_STATUS)
    for node, values in self._latest.items():
      if not self._counts_of[node]['learner_steps']:
        left[node_files.group(node)] -= 1
        if left[node_files.group(node)] < 0:
          continue
      shown[node] = dict(values)
    return shown

  def _earlier_evaluations(self) -> dict[str, dict[str, float]]:
    """Returns the final evaluations of an earlier incarnation, by node, if for this `num_steps`."""
    try:
      record = reading.json_object(os.path.join(self._run_dir, run_end.FINAL_EVALUATION))
      if record['num_steps'] != self._num_steps:
        return {}
      return {
        str(node): {str(name): float(value) for name, value in dict(values).items()}
        for node, values in dict(record['evaluations']).items()
      }
    except FileNotFoundError:
      return {}
    except (OSError, ValueError, LookupError, TypeError) as error:
      # The evaluators repeat them.
      logging.warning('%s is damaged, and not used: %s', run_end.FINAL_EVALUATION, error)
      return {}

  def _write_summary(self) -> None:
    with self._lock:
      # Of several, the group of the programs' own evaluator comes first. Their logs have the others.
      order = sorted(self._evaluations, key=lambda x: (node_files.group(x) != 'evaluator', x))
      summary = {
        'evaluator_return': math.nan,
        **{name: int(count) for name, count in self._counts().items()},
        'seconds': time.monotonic() - self._started,
        'learners': {node: values for node, values in sorted(self._final.items()) if values},
        **(self._evaluations[order[0]] if order else {}),
      }
    files.write_json(run_end.summary_path(self._run_dir), summary)
