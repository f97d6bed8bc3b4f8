"""Runs one seed of a row of a peer: its driver, in its virtual environment, from the beginning."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import time
from collections.abc import Mapping
from typing import Any

from benchmarks.peers import settings, systems, tree, virtual
from benchmarks.peers.systems import DriverRun
from benchmarks.results import attempts, provenance, recording, records
from benchmarks.results.declared import Entry, Peer
from benchmarks.results.failed import Failed
from benchmarks.results.places import Places
from rundir import directory_lock

_POLL_SECONDS = 0.5
# A driver without a report for so long has failed. Compiling and a final evaluation count.
_SILENCE_SECONDS = 900.0


def run(
  entry: Entry, row: Peer, seed: int, places: Places, scripts: Mapping[str, str], wheels: str
) -> None:
  """Brings a seed to its record. A peer cannot resume: a run that was stopped starts again.

  Args:
    entry: the row with its task.
    row: the row.
    seed: of the run.
    places: where the files go.
    scripts: the user's copies of peers that no package has, by peer.
    wheels: see `virtual.install`.

  Raises:
    Failed: the peer cannot be installed, or its driver failed.
  """
  peer = systems.PEERS[row.peer]
  script = scripts.get(row.peer, '')
  if peer.script and not script:
    raise Failed(f'it needs --scripts={row.peer}=PATH, the path of its {peer.script}')
  run_dir = places.run_dir(entry, seed)
  shutil.rmtree(run_dir, ignore_errors=True)
  with contextlib.suppress(FileNotFoundError):
    os.remove(places.attempts(entry, seed))
  os.makedirs(run_dir)
  directory_lock.take(run_dir)
  given = driver_settings(entry, row, seed) | {'script': script}
  try:
    virtual.install(row.peer, peer.python, wheels, peer.built)
    with (
      attempts.attempt(
        places.attempts(entry, seed), row.settings(), run_dir, places.docs
      ) as attempt,
      tree.killed_at_the_end() as processes,
      systems.start_driver(row.peer, given, run_dir, processes) as driver,
    ):
      _follow(driver, peer, row.budget)
      attempt.exit_code = 0
      reports_seen, final = driver.reports(), driver.final()
  except (ValueError, AssertionError) as error:
    lines = str(error).strip().splitlines()
    raise Failed(' '.join([*lines[:1], *lines[1:][-1:], f'({run_dir})'])) from error
  if not reports_seen:
    raise Failed(f'the driver has reported no steps ({run_dir})')
  versions = systems.versions(row.peer)
  if script:
    directory = script if os.path.isdir(script) else os.path.dirname(script)
    versions[row.peer] = provenance.code(directory)['commit'] or 'unknown'
  records.add(
    places.records(entry),
    recording.of_peer(entry, row, seed, reports_seen, final, attempt, versions),
  )


def driver_settings(entry: Entry, row: Peer, seed: int) -> dict[str, Any]:
  """Returns the settings for a driver: the common ones for a peer that is compared side by side.

  For such a peer a row may also give `game`, changed options of our Atari environment, and `options`,
  which are the peer's own and take precedence.

  Raises:
    ValueError: the row gives something that the peer does not take; one sentence.
  """
  own = {'num_steps': row.budget, 'episodes': entry.task.episodes}
  if not systems.PEERS[row.peer].side_by_side:
    return {**row.given, 'env': row.env, 'seed': seed, **own}
  given = dict(row.given)
  game, options = given.pop('game', {}), given.pop('options', {})
  common = dataclasses.asdict(settings.make({'env': row.env, 'seed': seed, **given}))
  return common | own | {'game': common['game'] | game, 'options': options}


def _follow(driver: DriverRun, peer: systems.Peer, budget: int) -> None:
  """Waits until a driver that ends has ended, and any other has reported its steps."""
  count, since = 0, time.monotonic()
  while not driver.ended():
    reports_seen = driver.reports()
    if not peer.ends and reports_seen and reports_seen[-1].steps >= budget:
      return
    if len(reports_seen) > count:
      count, since = len(reports_seen), time.monotonic()
    silent = time.monotonic() - since
    assert silent < _SILENCE_SECONDS, f'no report for {silent:.0f} s: {driver.last_words()}'
    time.sleep(_POLL_SECONDS)
  assert peer.ends, f'the driver ended before its steps: {driver.last_words()}'
