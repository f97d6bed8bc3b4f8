"""Makes the record of a run from the files that the run has left."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.peers import reports
from benchmarks.peers.drivers import recent
from benchmarks.results import attempts
from benchmarks.results.attempts import Attempt
from benchmarks.results.declared import Entry, Launch, Peer
from benchmarks.results.records import Curve, Record
from rundir import curves, lineage, run_directory, run_end
from rundir.roles import EVALUATOR, LEARNER

# Points of a curve that are kept.
_POINTS = 100
_EVALUATED = ('evaluator_return', 'evaluator_episodes')


def of_launch(
  entry: Entry,
  row: Launch,
  seed: int,
  run_dir: str,
  score: str,
  made: list[Attempt],
  code: dict[str, Any],
) -> Record:
  """Returns the record of a finished run of launch.py.

  Args:
    entry: the row with its task.
    row: the row.
    seed: of the run.
    run_dir: run directory.
    score: the JSON file of evaluate.py for the final parameters.
    made: the commands of the run.
    code: the version that evaluated, of `provenance.code`.
  """
  with open(score) as f:
    evaluated = json.load(f)
  summary = run_end.read_summary(run_dir)
  assert summary is not None
  run = run_directory.read_record(run_dir)
  repeat = evaluated['protocol']['action_repeat']
  final = {name: evaluated['score'][name] for name in ('mean', 'standard_error', 'episodes')}
  totals = {name: summary[name] for name in ('actor_steps', 'environment_frames')}
  return Record(
    row=entry.name,
    seed=seed,
    settings=row.settings(),
    command=' '.join(row.command(entry.name, seed)),
    curve=_evaluations(run_dir, made, repeat),
    returns='evaluator',
    final={
      **final,
      'protocol': _protocol(evaluated['protocol']),
      'code': code,
      **_member_scores(run_dir),
    },
    totals={
      **totals,
      'seconds': round(sum(a.seconds or 0.0 for a in made), 1),
      'steps_per_second': _training_rate(run_dir, [a.first_second for a in made]),
    },
    attempts=[dataclasses.asdict(attempt) for attempt in made],
    versions=run.versions,
    options=settings_of(run.config),
  )


def of_peer(
  entry: Entry,
  row: Peer,
  seed: int,
  reports_seen: Sequence[reports.Report],
  final: dict[str, Any] | None,
  made: Attempt,
  versions: dict[str, str],
) -> Record:
  """Returns the record of a finished run of a peer.

  Args:
    entry: the row with its task.
    row: the row.
    seed: of the run.
    reports_seen: the driver's reports.
    final: the driver's final evaluation; without one, the last training return takes its place.
    made: the command.
    versions: of the peer's packages.
  """
  curve = _training_curve(reports_seen, row.action_repeat)
  if final is None:
    protocol = f'training episodes, the mean of the last {recent.EPISODES}, with exploration'
    final = {
      'mean': curve.mean_return[-1],
      'standard_error': None,
      'episodes': recent.EPISODES,
      'protocol': protocol,
    }
  steps = int(reports_seen[-1].steps)
  rate = reports.rate([report for report in reports_seen if report.steps > 0], 'steps')
  return Record(
    row=entry.name,
    seed=seed,
    settings=row.settings(),
    command=row.shown_command(entry.name),
    curve=curve,
    returns=f'training, the last {recent.EPISODES} episodes',
    final=final,
    totals={
      'actor_steps': steps,
      'environment_frames': steps * row.action_repeat,
      'seconds': round(made.seconds or 0.0, 1),
      'steps_per_second': None if rate is None else round(rate, 1),
    },
    attempts=[dataclasses.asdict(made)],
    versions=versions,
  )


def settings_of(config: Mapping[str, Any]) -> dict[str, Any]:
  """Returns the options of a run that are neither the seed nor a path or several."""

  def is_setting(name: str, value: Any) -> bool:
    parts = value if isinstance(value, list) else [value]
    return name != 'seed' and not any(
      isinstance(part, str) and os.path.isabs(part) for part in parts
    )

  return {name: value for name, value in config.items() if is_setting(name, value)}


def _member_scores(run_dir: str) -> dict[str, Any]:
  """Returns the last score of each member of a population that has one; {} for other runs."""
  last = {event.member: event for event in lineage.read(run_dir)}
  scores = [digits(e.score) for _, e in sorted(last.items()) if e.score is not None]
  return {'member_scores': scores} if scores else {}


def _evaluations(run_dir: str, made: list[Attempt], repeat: int) -> Curve:
  """Returns the evaluator's curve; its frames are those of the parameters, where they are known."""
  read = (
    curves.read(run_dir, node, 'seconds', frames, *_EVALUATED)
    for node in curves.nodes(run_dir, EVALUATOR)
    for frames in ('evaluated_frames', 'environment_frames')
  )
  rows = next(filter(None, read), [])
  rows = _thin(rows, [mean for _, _, mean, _ in rows])
  return Curve(
    actor_steps=[round(frames / repeat) for _, frames, _, _ in rows],
    environment_frames=[round(frames) for _, frames, _, _ in rows],
    seconds=[round(attempts.wall_seconds(made, second), 2) for second, _, _, _ in rows],
    mean_return=[digits(mean) for _, _, mean, _ in rows],
    episodes=[round(episodes) for _, _, _, episodes in rows],
  )


def _training_curve(reports_seen: Sequence[reports.Report], repeat: int) -> Curve:
  rows = [r for r in reports_seen if math.isfinite(r.episode_return)]
  rows = _thin(rows, [r.episode_return for r in rows])
  return Curve(
    actor_steps=[round(r.steps) for r in rows],
    environment_frames=[round(r.steps * repeat) for r in rows],
    seconds=[round(r.seconds, 2) for r in rows],
    mean_return=[digits(r.episode_return) for r in rows],
    episodes=[recent.EPISODES] * len(rows),
  )


def _training_rate(run_dir: str, starts: Sequence[float]) -> float | None:
  """Returns the learner's actor steps per second, the time between attempts and start-up left out."""
  for node in curves.nodes(run_dir, LEARNER):
    rows = curves.read(run_dir, node, 'seconds', 'actor_steps')
    steps = seconds = 0.0
    for (before, had), (after, has) in itertools.pairwise(rows):
      if not any(before <= start < after for start in starts):
        steps, seconds = steps + has - had, seconds + after - before
    if seconds > 0:
      return round(steps / seconds, 1)
  return None


def _protocol(protocol: dict[str, Any]) -> str:
  """Returns the protocol of evaluate.py in words."""
  options = ', '.join(f'{name}={value}' for name, value in protocol['env_options'].items())
  exploration = protocol['exploration']
  count = protocol['episodes_each'] * protocol['num_envs']
  episodes = 'whole episodes'
  if protocol.get('cut'):
    episodes = f'episodes, cut at {protocol["max_episode_steps"]} steps,'
  return (
    f'{count} {episodes} of `{protocol["env"]}`'
    + (f' ({options})' if options else '')
    + f', {f"exploration {exploration:g}" if exploration else "greedy"}, {protocol["reward"]} rewards, '
    f'action repeat {protocol["action_repeat"]}'
  )


def _thin(rows: Sequence[Any], returns: Sequence[float]) -> list[Any]:
  """Returns `_POINTS` evenly spaced rows, the first and the last among them, and every new best return.

  So the first row at any threshold stays.
  """
  if len(rows) <= _POINTS:
    return list(rows)
  kept = {i * (len(rows) - 1) // (_POINTS - 1) for i in range(_POINTS)}
  best = -math.inf
  for i, value in enumerate(returns):
    if value > best:
      best = value
      kept.add(i)
  return [rows[i] for i in sorted(kept)]


def digits(value: float) -> float:
  """Rounds to six significant digits."""
  return float(f'{value:.6g}')
