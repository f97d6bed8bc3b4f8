"""What an export sends to a tracker: measurements, videos and pictures of a run."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

AXES = ('environment_frames', 'actor_steps', 'learner_steps', 'seconds')


@dataclasses.dataclass(frozen=True)
class Metrics:
  """Measurements of a node or of its process.

  Attributes:
    prefix: begins their names, such as 'actor/3' or 'processes/actor/3'.
    time: in `time.time()` seconds; 0 if unknown.
    axes: their place on each axis that is known: counters of the program, seconds of the run.
    values: finite, by name.
  """

  prefix: str
  time: float
  axes: Mapping[str, float]
  values: Mapping[str, float]


@dataclasses.dataclass(frozen=True)
class Media:
  """A video, a picture, or the lineage of a population.

  Attributes:
    name: under which a tracker shows it; a later one replaces an earlier one.
    path: of the file, which may be deleted at any time.
    actor_steps: when a video was made; 0 for another file.
  """

  name: str
  path: str
  actor_steps: int = 0


Record = Metrics | Media


@dataclasses.dataclass(frozen=True)
class Outcome:
  """How a run ended.

  Attributes:
    state: 'finished', 'failed', 'stopped' by a signal or a user, or 'killed' with its launcher.
    exit_code: of the launcher; None if it is not known.
    summary: the numbers of `summary.json`; {} if the run has not finished.
  """

  state: str
  exit_code: int | None
  summary: Mapping[str, float]


@dataclasses.dataclass(frozen=True)
class Header:
  """What is known of a run when it starts.

  Attributes:
    name: of the run directory.
    run_dir: its absolute path.
    config: the options, without the values of secrets; the program; the versions, by package.
  """

  name: str
  run_dir: str
  config: Mapping[str, Any]
