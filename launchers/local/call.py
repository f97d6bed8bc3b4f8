"""This machine as an engine of `launchers.launch`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from launchers import streams
from launchers.engine import Job
from launchers.local import accelerators, capacity, isolation, local_mp
from launchers.supervise import RunCallbacks

OPTIONS: Mapping[str, tuple[type, ...]] = {'isolate': (str,)}


def prepared(job: Job, options: Mapping[str, Any]) -> Job:
  """Returns the job with the GPUs of its groups; enters a network namespace if asked to.

  Raises:
    ValueError: for groups that one machine cannot run; one sentence.
  """
  mode = options.get('isolate', 'no')
  if mode not in isolation.MODES:
    raise ValueError(f'isolate={mode!r} is none of {", ".join(isolation.MODES)}.')
  capacity.check(job.placement, one_process=False)
  return placed(job, mode)


def placed(job: Job, mode: str) -> Job:
  """Enters a network namespace, and returns the job with the GPUs of its groups, which it prints.

  Args:
    job: the job.
    mode: see `isolation.enter`. To enter the namespace, the process may re-execute its command.

  Raises:
    ValueError: if the namespace, a plug-in, the driver or GPUs are missing; one sentence.
  """
  isolation.enter(mode, job.placement)
  job = dataclasses.replace(job, placement=accelerators.assigned(job.placement))
  if chosen := accelerators.describe(job.placement):
    streams.say(chosen)
  return job


def launch(job: Job, callbacks: RunCallbacks, options: Mapping[str, Any]) -> int:
  """Runs a job to completion; returns the exit code."""
  return local_mp.launch(
    job.program, job.placement, job.run_dir, callbacks=callbacks, node_timeout=job.node_timeout
  )
