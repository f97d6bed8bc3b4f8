"""The view of a running program: a live table on a terminal, log lines elsewhere."""

from __future__ import annotations

import contextlib
import math
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any

from rich.live import Live
from rich.table import Table

from launchers import bottleneck, nodes_view, streams
from launchers.console import PlainConsole
from launchers.follow import Follower
from launchers.heartbeat import Beat
from launchers.nodes_view import clock
from launchers.recent import Recent
from nodes.runtime import activity
from rundir.graph_file import Graph
from rundir.roles import ACTOR, LEARNER

# Figures that are summed over nodes; of other figures, the last node's is shown.
_ADDED = {
  'actor_steps_per_second',
  'environment_frames_per_second',
  'replay_size',
  'checkpoint_failures',
}

# A longer activity is shown, unless it is one of normal operation.
_LONG_SECONDS = 60.0
_UNREMARKABLE = {
  each.name
  for each in (
    activity.IDLE,
    activity.RUNNING,
    activity.SERVING,
    activity.PLAYING,
    activity.WAITING_FOR_WORKERS,
    activity.UPDATING,
    activity.RELABELLING,
    activity.COMPILED_LOOP,
  )
}
# The program takes no steps during these, so they are shown sooner.
_START_UP_SECONDS = 5.0
_START_UP = {activity.COMPILING.name, activity.RESTORING.name}
_MOST_SHOWN = 3


class View:
  """Shows the status of a follower, from a thread, until closed.

  Attributes:
    thread: ends when the view or its terminal is closed.
  """

  def __init__(
    self,
    follower: Follower,
    title: str,
    config: Mapping[str, Any],
    graph: Graph,
    log_period: float = 5.0,
    live: bool = True,
  ):
    """Initialises a view.

    Args:
      follower: follower of the program.
      title: title of the live table.
      config: the program's options; {} if unknown.
      graph: the program's groups and what they do.
      log_period: seconds between log lines.
      live: whether to show a live table if stdout is a terminal; log lines otherwise.
    """
    self._follower = follower
    self._title = title
    self._config = config
    self._graph = graph
    self._log_period = log_period
    self._live = live
    self._beats: Mapping[str, Beat] = {}
    self._restarts_of: dict[str, int] = {}
    self._recent: dict[str, Recent] = {}
    self._cpu = Recent()
    self._restarts = 0
    self._problem = ''
    self._losses = 0
    self._waiting: dict[str, str] = {}
    self._closed = threading.Event()
    self.thread = threading.Thread(target=self._show, name='view', daemon=True)

  def start(self) -> None:
    """Starts the view."""
    self.thread.start()

  def close(self) -> None:
    """Stops the view, restores the terminal and leaves the last state on it."""
    self._closed.set()
    if self.thread.ident is not None:
      self.thread.join(timeout=5)
    with contextlib.suppress(OSError, ValueError):  # As in `_show`.
      self._status()  # Prints the warnings since the last line.

  def restarted(self, name: str) -> None:
    """Counts a restart of a node."""
    self._restarts += 1
    node = name.split()[0]
    self._restarts_of[node] = self._restarts_of.get(node, 0) + 1

  def beats(self, beats: Mapping[str, Beat]) -> None:
    """Receives the latest heartbeat of each node; nodes in a long activity are shown."""
    self._beats = beats
    self._waiting = {
      node: f'{beat.doing} ({clock(beat.seconds)})'
      for node, beat in sorted(beats.items())
      if _is_shown(beat)
    }
    if len({beat.host for beat in beats.values()}) == 1:
      used, idle = zip(
        *((beat.cpu_seconds, beat.idle_seconds) for beat in beats.values()), strict=True
      )
      known = {'idle': max(idle)} if any(idle) else {}
      self._cpu.add(time.monotonic(), {'used': sum(used), **known})

  def _show(self) -> None:
    # A closed terminal ends the view, not the program.
    with contextlib.suppress(OSError, ValueError):
      self._show_until_closed()

  def _show_until_closed(self) -> None:
    if self._live and sys.stdout.isatty():
      with Live(console=PlainConsole(), refresh_per_second=4) as live:
        while not self._closed.wait(0.5):
          live.update(self._table())
    else:
      print(streams.printable(self._title), flush=True)
      shown = None
      while not self._closed.wait(self._log_period):
        status = self._status()
        line = as_line(status) if status else self._line()
        if line != shown:
          print(streams.printable(line), flush=True)
        shown = line

  def _table(self) -> Table | str:
    if status := self._status():
      return as_table(self._title, status)
    if self._beats and not self._follower.has_monitor:
      return nodes_view.as_table(self._title, self._beats, self._restarts_of)
    return f'{self._title}: {self._starting()}'

  def _line(self) -> str:
    """Returns the line of a program that has no status."""
    if self._follower.has_monitor:
      return self._starting()
    return nodes_view.as_line(self._beats, self._restarts)

  def _starting(self) -> str:
    """Returns how many nodes have begun their work; hundreds on one machine need minutes."""
    total = sum(group.nodes for group in self._graph.groups)
    working = sum(beat.has_worked for beat in self._beats.values())
    return f'starting ({working:,} of {total:,} nodes work)' if working else 'starting'

  def _status(self) -> dict[str, Any] | None:
    status = self._follower.status
    if status is None:
      return None
    if status['problem'] and status['problem'] != self._problem:
      streams.say(f'warning: {status["problem"]}', sys.stderr)
    self._problem = status['problem']
    for loss in status['losses'][self._losses :]:
      print(f'warning: {loss}', file=sys.stderr, flush=True)
    self._losses = len(status['losses'])
    return status | {
      'graph': self._graph,
      'restarts': self._restarts,
      'waiting': self._waiting,
      'verdict': self._verdict(status),
    }

  def _verdict(self, status: dict[str, Any]) -> bottleneck.Verdict:
    for node, values in status['latest'].items():
      self._recent.setdefault(node, Recent()).add(status['elapsed'], values)
    means = {node: recent.means() for node, recent in self._recent.items()}
    cores = self._cpu.rate('used'), self._cpu.rate('idle')
    return bottleneck.of_program(means, self._config, self._graph, *cores)


def _is_shown(beat: Beat) -> bool:
  longest = _START_UP_SECONDS if beat.doing in _START_UP else _LONG_SECONDS
  return beat.seconds > longest and beat.doing not in _UNREMARKABLE


def _waiting(status: dict[str, Any]) -> list[tuple[str, str]]:
  """Returns (node, activity) of the nodes in a long activity: the first few, and how many more."""
  waiting = list(status['waiting'].items())
  more = len(waiting) - _MOST_SHOWN
  return waiting[:_MOST_SHOWN] + ([('others', f'{more} more')] if more > 0 else [])


def remaining(status: dict[str, Any]) -> float:
  """Returns the seconds to the end of training at the rate since the first step; nan if unknown."""
  if status['finished']:
    return 0.0
  steps, since = status['counts']['actor_steps'], status['since_first_step']
  done = steps - status['first_actor_steps']
  return max(_num_steps(status) - steps, 0) * since / done if done > 0 and since else math.nan


def _num_steps(status: dict[str, Any]) -> float:
  try:
    return float(status['num_steps'])
  except OverflowError:
    return math.inf


def figures(status: dict[str, Any]) -> list[tuple[str, str]]:
  """Returns the figures to show, as (name, text); '-' for a figure that has not been measured."""
  latest = _latest(status)
  counts = status['counts']

  def get(name: str, form: str = ',.0f') -> str:
    value = latest.get(name, math.nan)
    return format(value, form) if math.isfinite(value) else '-'

  share = counts['actor_steps'] / _num_steps(status)
  return [
    ('elapsed', clock(status['elapsed'])),
    ('remaining', clock(remaining(status))),
    ('restarts', str(status['restarts'] or '-')),
    ('checkpoint_failures', '-' if (failures := get('checkpoint_failures')) == '0' else failures),
    ('progress', f'{min(share, 1.0):.0%}'),
    ('actor_steps', f'{counts["actor_steps"]:,.0f}'),
    ('environment_frames', f'{counts["environment_frames"]:,.0f}'),
    ('learner_steps', f'{counts["learner_steps"]:,.0f}'),
    ('steps/s', get('actor_steps_per_second')),
    ('frames/s', get('environment_frames_per_second')),
    ('updates/s', get('learner_steps_per_second', ',.1f')),
    ('episode_return', get('episode_return', '.3g')),
    ('evaluator_return', get('evaluator_return', '.3g')),
    ('policy_lag', get('policy_lag_mean', '.1f')),
    ('batch_fill', get('inference_batch_fill', '.0%')),
    ('replay_size', get('replay_size')),
    ('samples_per_insert', get('samples_per_insert', '.2f')),
    ('priority', get('priority_mean', '.3g')),
    ('bottleneck', bottleneck.name(status.get('verdict', bottleneck.UNKNOWN))),
    ('exploration', _range(get('exploration_min', '.2g'), get('exploration_max', '.2g'))),
  ]


def _latest(status: dict[str, Any]) -> dict[str, float]:
  """Returns the latest of each measurement: the learners', or else that of the nodes that only act."""
  of_learners: dict[str, float] = {}
  of_others: dict[str, float] = {}
  for node, values in status['latest'].items():
    roles = status['graph'].roles(node)
    found = of_learners if LEARNER in roles else of_others
    if LEARNER in roles or ACTOR not in roles:  # Each actor measures its own part alone.
      found |= values | {n: found.get(n, 0.0) + values[n] for n in _ADDED & values.keys()}
  return of_others | of_learners


def _range(low: str, high: str) -> str:
  return low if low == high else f'{low}..{high}'


def as_line(status: dict[str, Any]) -> str:
  """Returns the figures that have been measured, and the nodes in a long activity, in one line."""
  measured = [f'{name}={text}' for name, text in figures(status) if text != '-']
  return ' '.join([*measured, *(f'{node}="{doing}"' for node, doing in _waiting(status))])


def as_table(title: str, status: dict[str, Any]) -> Table:
  """Returns the figures that have been measured, in two columns."""
  table = Table(title=title, show_header=False)
  for _ in range(2):
    table.add_column(style='dim')
    table.add_column(justify='right', min_width=12)
  shown = [(name, text) for name, text in figures(status) if text != '-']
  half = (len(shown) + 1) // 2
  for i in range(half):
    right = shown[half + i] if half + i < len(shown) else ('', '')
    table.add_row(*shown[i], *right)
  captions = [', '.join(f'{node} {doing}' for node, doing in _waiting(status))]
  if 'verdict' in status:
    captions.append(status['verdict'].sentence)
  table.caption = '\n'.join(filter(None, captions)) or None
  return table
