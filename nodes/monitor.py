"""The monitor: takes every node's measurements, writes the run directory, knows the progress."""

from __future__ import annotations

import contextlib
import json
import math
import os
import threading
import time
from collections.abc import Mapping
from typing import Any

from absl import logging

from nodes.runtime import activity, full_disk, lifecycle, rpc
from nodes.runtime.counters import COUNTERS
from rundir import curves, files, run_directory
from rundir.recorder import Recorder

FINAL_EVALUATION = 'final_evaluation.json'
_LARGEST = 2**63 - 1  # Integer that a call can answer with.


class Monitor:
  """Logs what nodes report and ends the program after the final evaluation. All methods are RPCs.

  Reports are absolute, so a report that arrives twice changes nothing. Of each node the run
  directory gets `logs/<node>.csv` and TensorBoard scalars `<node's group>/<name>`; their time axis
  is environment frames. The counters in them are the program's: of several inference-learners, the
  actor steps and frames are added up, while learner steps are common to all.
  """

  def __init__(self, run_dir: str, num_steps: int, has_evaluator: bool, num_learners: int = 1):
    """Opens the logs.

    Args:
      run_dir: an existing directory.
      num_steps: actor steps of the whole run, for progress.
      has_evaluator: whether to wait for a final evaluation.
      num_learners: how many nodes call `training_finished`, those that infer for learners included.
    """
    self._run_dir = run_dir
    self._num_steps = num_steps
    self._has_evaluator = has_evaluator
    self._num_learners = num_learners
    # A monitor that is started again goes on where its logs end; what a wall clock says may go back.
    self._started = time.monotonic() - curves.last_second(run_dir)
    self._first_step = 0.0
    self._first_count = 0.0
    self._lock = threading.Lock()
    self._latest: dict[str, dict[str, float]] = {}
    self._counts_of: dict[str, dict[str, float]] = {}
    self._final: dict[str, dict[str, float]] = {}
    self._recorder = Recorder(run_dir)
    self._evaluation = self._earlier_evaluation()
    self._problem = ''
    self._training_finished = threading.Event()
    self._finished = threading.Event()

  def report(self, node: str, values: Mapping[str, float]) -> None:
    """Takes a node's measurements, to be logged; waits for no disk.

    Args:
      node: such as 'actor/3'.
      values: by name; those called like a counter update that counter.
    """
    with self._lock:
      if 'actor_steps' in values and node not in self._counts_of:
        self._first_step = self._first_step or time.monotonic()
        self._first_count += values['actor_steps']
      finite = {name: value for name, value in values.items() if math.isfinite(value)}
      self._latest.setdefault(node, {}).update(finite)
      counts = self._count(node, values)
      row = {'seconds': time.monotonic() - self._started, **values, **counts}
      scalars = finite | {n: counts[n] for n in COUNTERS if n in finite}
      tagged = {f'{node.split("/")[0]}/{name}': value for name, value in scalars.items()}
      self._recorder.put(node, row, int(counts['environment_frames']), tagged)

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
    """Returns what the live view shows: counters, times, each node's last value of everything."""
    with self._lock:
      return {
        'elapsed': time.monotonic() - self._started,
        'since_first_step': time.monotonic() - self._first_step if self._first_step else 0.0,
        'first_actor_steps': self._first_count,
        'num_steps': min(self._num_steps, _LARGEST),
        'counts': self._counts(),
        'latest': {node: dict(values) for node, values in self._latest.items()},
        'finished': self._training_finished.is_set(),
        'problem': self._recorder.problem or self._problem,
      }

  def training_finished(self, node: str, values: Mapping[str, float]) -> None:
    """Takes a learner's final counters and whatever else the summary is to say about it.

    After the last learner's the program ends; if there is an evaluator, after its final evaluation.

    Args:
      node: such as 'inference_learner/0'.
      values: by name; of a node that does not learn, none.
    """
    with self._lock:
      self._count(node, values)
      self._final[node] = dict(values)
      if len(self._final) < self._num_learners:
        return
    self._training_finished.set()
    if not self._has_evaluator or self._evaluation:
      self._finished.set()

  def final_evaluation(self, values: Mapping[str, float]) -> None:
    """Takes the evaluation of the final parameters; the program ends.

    It is on disk before this returns: the evaluator does not repeat it to a monitor that has
    restarted.

    Raises:
      RuntimeError: `rpc.retry_later_error()`, while the disk is full: the evaluator is to say it again.
    """
    if not self._finished.is_set():
      record = {'num_steps': self._num_steps, 'values': dict(values)}
      try:
        files.write_json(os.path.join(self._run_dir, FINAL_EVALUATION), record)
      except OSError as error:
        if error.errno not in full_disk.FULL:
          raise
        self._problem = f'{self._run_dir} cannot take the final evaluation: {error.strerror}'
        raise rpc.retry_later_error() from error
      self._problem = ''
      self.report('evaluator/0', values)
    with self._lock:
      self._evaluation = dict(values)
    self._finished.set()

  def run(self) -> None:
    """Waits for the end of training, writes summary and picture, and stops the program."""
    stop = lifecycle.stop_event()
    with self._recorder:
      while not stop.wait(0.1) and not self._finished.is_set():
        activity.mark(activity.SERVING)
      activity.mark(activity.WRITING_CHECKPOINT)
    if self._finished.is_set():
      with contextlib.suppress(lifecycle.Stopped):
        full_disk.write_when_there_is_room(self._write_summary, stop.is_set, 'the summary')
    try:
      curves.draw(self._run_dir)
    except OSError as error:
      logging.error('there is no picture of the curves: %s', error)
    if self._finished.is_set():
      lifecycle.stop_program()

  def _count(self, node: str, values: Mapping[str, float]) -> dict[str, float]:
    """Takes the counters among a node's values, which never fall; returns those of the program."""
    counts = self._counts_of.setdefault(node, dict.fromkeys(COUNTERS, 0.0))
    for name in COUNTERS:
      counts[name] = max(counts[name], values.get(name, 0.0))
    return self._counts()

  def _counts(self) -> dict[str, float]:
    """Returns the program's counters: learners do every update together, and act each for itself."""
    nodes = self._counts_of.values()
    counts = {name: sum(node[name] for node in nodes) for name in COUNTERS}
    return counts | {'learner_steps': max((n['learner_steps'] for n in nodes), default=0.0)}

  def _earlier_evaluation(self) -> dict[str, float]:
    """Returns the final evaluation that an earlier life took; {} if it took none of a run this long."""
    try:
      with open(os.path.join(self._run_dir, FINAL_EVALUATION)) as f:
        record = json.load(f)
      return dict(record['values']) if record['num_steps'] == self._num_steps else {}
    except FileNotFoundError:
      return {}
    except (ValueError, LookupError, TypeError) as error:  # It is played again.
      logging.warning('%s is damaged, and not used: %s', FINAL_EVALUATION, error)
      return {}

  def _write_summary(self) -> None:
    with self._lock:
      summary = {
        'evaluator_return': self._evaluation.get('evaluator_return', math.nan),
        **{name: int(count) for name, count in self._counts().items()},
        'seconds': time.monotonic() - self._started,
        'learners': {node: values for node, values in sorted(self._final.items()) if values},
      } | self._evaluation
    files.write_json(run_directory.summary_path(self._run_dir), summary)
