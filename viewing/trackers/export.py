"""The process that exports one run. It runs in the tracker's own environment; see `environment`."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from launchers import streams
from rundir import directory_lock
from viewing.liveness import RUNNING, Liveness
from viewing.trackers.bookmark import Bookmark
from viewing.trackers.records import Record
from viewing.trackers.sink import Sink, SinkError
from viewing.trackers.stream import Stream, header, outcome

DEFAULTS: dict[str, Any] = {'every': 5.0, 'axis': 'environment_frames'}


def export(
  run_dir: str,
  sink: Sink,
  bookmark: Bookmark,
  period: float = 2.0,
  say: Callable[[str], None] = print,
  sleep: Callable[[float], None] = time.sleep,
) -> None:
  """Exports a run until it ends, or an interrupt.

  Args:
    run_dir: the run directory.
    sink: the tracker.
    bookmark: where to continue.
    period: seconds between two reads.
    say: receives lines for the user.
    sleep: waits for some seconds.

  Raises:
    ValueError: if it is not a run directory; one sentence.
    SinkError: if the tracker cannot be used.
  """
  about = header(run_dir)
  every = bookmark.options['every']
  if bookmark.open and not sink.keeps:
    say(
      f'{about.name}: the last export was killed, and the tracker may lack its last records, so this '
      'one is a new run there; delete the other'
    )
    bookmark.reset()
  liveness = Liveness(run_dir)
  repeated = []
  if bookmark.sending is not None:  # An export was killed while it sent these.
    repeated = Stream(run_dir, every, bookmark.cursor, end=bookmark.sending).read(flush=True)
  stream = Stream(run_dir, every, bookmark.sending or bookmark.cursor)
  over = _is_over(run_dir, liveness)
  records = stream.read(over)
  if bookmark.ended and not repeated and not records and over:
    say(f'{about.name}: {bookmark.count} records were exported before; nothing is new')
    return
  bookmark.open = True
  bookmark.save()
  try:
    bookmark.run_id, where = sink.start(about, bookmark.key, bookmark.run_id)
    bookmark.save()
    say(f'{about.name}: {where}')
    if bookmark.sending is not None:
      _send(sink, repeated, bookmark, say, period, sleep)
    while True:
      while records:
        bookmark.begin(stream.cursor)
        _send(sink, records, bookmark, say, period, sleep)
        records = stream.read(over)
      if over:
        break
      sleep(period)
      over = _is_over(run_dir, liveness)
      records = stream.read(over)
    ended = outcome(run_dir)
    sink.end(ended)
    bookmark.ended = True
    bookmark.save()
    say(f'{about.name}: {ended.state}, {bookmark.count} records exported')
  finally:
    sink.close()
    bookmark.open = False
    bookmark.save()


def _send(
  sink: Sink,
  records: Sequence[Record],
  bookmark: Bookmark,
  say: Callable[[str], None],
  period: float,
  sleep: Callable[[float], None],
) -> None:
  """Sends records, again and again until the tracker has them."""
  complained = False
  while True:
    try:
      sink.log(records, bookmark.count)
    except SinkError as error:
      if not complained:
        say(f'{error} It is tried again.')
      complained = True
      sleep(max(period, 5.0))
    else:
      bookmark.commit(len(records))
      return


def _is_over(run_dir: str, liveness: Liveness) -> bool:
  """Returns whether nothing more is written; a launcher writes until it frees the directory."""
  liveness.update()
  return liveness.state != RUNNING and not directory_lock.is_taken(run_dir)


def make_sink(tracker: str, project: str, axis: str) -> Sink:
  """Returns the sink of a tracker, 'wandb' or 'mlflow'."""
  if tracker == 'wandb':
    from viewing.trackers.wandb_sink import WandbSink

    return WandbSink(project, axis)
  from viewing.trackers.mlflow_sink import MlflowSink

  return MlflowSink(project, axis)


def main(argv: Sequence[str]) -> int:
  """Runs the command, whose flags watch.py has checked; returns the exit code."""
  streams.ensure_streams()
  # The libraries report on their own use unless these variables forbid it.
  os.environ.setdefault('WANDB_ERROR_REPORTING', 'false')
  os.environ.setdefault('MLFLOW_DISABLE_TELEMETRY', 'true')
  parser = argparse.ArgumentParser()
  parser.add_argument('run_dir')
  parser.add_argument('--to', required=True)
  parser.add_argument('--project', default='launchpod')
  parser.add_argument('--every', type=float)
  parser.add_argument('--axis')
  parser.add_argument('--period', type=float, default=2.0)
  args = parser.parse_args(argv[1:])
  for number in (signal.SIGTERM, signal.SIGHUP):  # As of a terminal that is closed.
    signal.signal(number, signal.default_int_handler)
  given = {'every': args.every, 'axis': args.axis}
  try:
    sink = make_sink(args.to, args.project, args.axis or DEFAULTS['axis'])
    bookmark = Bookmark(args.run_dir, args.to, sink.destination, given)
    bookmark.set_options({n: DEFAULTS[n] if v is None else v for n, v in given.items()})
    if args.axis is None and bookmark.options['axis'] != DEFAULTS['axis']:
      sink = make_sink(args.to, args.project, bookmark.options['axis'])
    export(args.run_dir, sink, bookmark, args.period, say=lambda line: print(line, flush=True))
  except (ValueError, SinkError) as error:
    print(f'error: {error}', file=sys.stderr)
    return 2
  except KeyboardInterrupt:
    return 130
  return 0
