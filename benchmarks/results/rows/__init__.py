"""The rows of the results page: what `python -m benchmarks.results` runs.

If a row's environment, flags, budget or preset change, its recorded runs are no longer its own: they
leave the page, and the next command runs the row again. Further seeds run alone; thresholds and
published figures need no runs.
"""

from __future__ import annotations

from benchmarks.results.rows import (
  classic_control,
  experiments,
  gossip,
  jax_suites,
  lifetimes,
  memory,
  minatar,
  mujoco,
  offline,
  pong,
  population,
  search,
)

GROUPS = (
  *experiments.GROUPS,
  *gossip.GROUPS,
  *population.GROUPS,
  *minatar.GROUPS,
  *jax_suites.GROUPS,
  *mujoco.GROUPS,
)

TASKS = (
  *classic_control.TASKS,
  *offline.TASKS,
  *memory.TASKS,
  *experiments.TASKS,
  *search.TASKS,
  minatar.DIFFERENCES,
  *lifetimes.TASKS,
  *gossip.TASKS,
  *population.TASKS,
  *minatar.TASKS,
  *jax_suites.TASKS,
  *mujoco.TASKS,
  *pong.TASKS,
)
