"""--init_from: a new run that begins with the parameters of another run."""

from __future__ import annotations

import dataclasses
from typing import Any

from agents import options
from environments import user_file
from launchers.engine import Job
from programs import preset_list, runs
from programs.options import agent_choice
from programs.options.inference import InferenceConfig
from programs.runs import Run
from rundir import saved_params
from rundir.checkpoints import UnusableCheckpoint
from rundir.saved_params import SavedParams

# Agents whose parameters another one can begin with, beside its own: they have the same network.
_ALIKE = {'ppo': ('bc',), 'vtrace': ('bc',)}


@dataclasses.dataclass(frozen=True)
class Source:
  """The parameters that a run begins with.

  Attributes:
    saved: the parameters.
    advice: what to change if they do not fit the run's agent; the end of a sentence.
  """

  saved: SavedParams
  advice: str


def source(run: Run) -> Source | None:
  """Returns the parameters that a new run begins with; None without --init_from.

  Raises:
    ValueError: if the flag names no run with parameters that the agent can have; one sentence.
  """
  path = run.config.run.init_from
  if not path:
    return None
  try:
    other = runs.recorded_run(path)
    saved = saved_params.read(path)
  except UnusableCheckpoint as error:
    raise ValueError(
      f'--init_from={path} has no parameters: {str(error).rstrip(".")}; name another run.'
    ) from error
  except ValueError as error:
    raise ValueError(f'--init_from={error}') from error
  theirs, ours = (
    agent_choice.name_of(r.module, r.config) or user_file.title(r.program) for r in (other, run)
  )
  usable = ours, *_ALIKE.get(ours, ())
  if theirs not in usable:
    raise ValueError(
      f'--init_from={path} has parameters of {theirs}, but this run trains {ours}; name a run that '
      f'trained {" or ".join(usable)}.'
    )
  return Source(saved, f'that run has {_differences(other.config, run.config)}.')


def place(job: Job) -> None:
  """Copies the parameters of --init_from into the run directory of a new run, which begins there."""
  if job.config['init_from'] and not job.resumed:
    saved_params.write_initial(job.run_dir, saved_params.read(job.config['init_from']))


def _differences(theirs: Any, ours: Any) -> str:
  """Returns, as flags, what another run has and this one lacks, of the options of what is learned."""
  resources = options.flatten(InferenceConfig()).keys() - {'env', 'env_options'}
  other, own = options.flatten(theirs), options.flatten(ours)
  found = [
    f'--{name}={preset_list.plain(other[name])}'
    for name in sorted((own.keys() & other.keys()) - resources)
    if other[name] != own[name]
  ]
  return ' '.join(found) or 'the same options in another version'
