"""Tasks for search."""

from __future__ import annotations

from benchmarks.results.declared import Task
from benchmarks.results.rows import systems

TASKS = (
  Task(
    name='tic-tac-toe',
    title='Tic-tac-toe',
    about=(
      "pgx's tic-tac-toe, learned by self-play. The return is the outcome against a perfect player: a "
      'mean of 0 over 1,000 games means that none was lost.'
    ),
    rows=(
      systems.muzero('pgx:tic_tac_toe', 1_000_000, '--env_options=opponent=perfect,random_moves=4'),
    ),
    thresholds=(-0.1, 0.0),
    episodes=1000,
  ),
)
