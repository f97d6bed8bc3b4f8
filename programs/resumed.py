"""Resuming a run: its record, changed by the flags."""

from __future__ import annotations

import dataclasses

from environments import own_file
from programs import registry
from programs.options import agents, flags, preset_choice
from programs.options.changes import check_changes, keep
from programs.options.configs import check, resolve
from programs.runs import Run
from rundir import checkpoints, run_directory


def resumed_run(path: str, program: str) -> Run:
  """Returns an earlier run with the changes that the flags make.

  Args:
    path: the run directory, which this process locks.
    program: the value of --program; '' if not given.

  Raises:
    ValueError: if the run cannot be resumed, or not with these flags; one sentence.
  """
  path, record = run_directory.reopen(path)
  if own_file.absolute(program) not in ('', record.program):
    raise ValueError(
      f'--resume={path} is a run of --program={record.program}; leave --program out.'
    )
  module, changes = registry.load(record.program), flags.given()
  given = record.given | changes
  agent = agents.recorded(module, record.config, changes)
  config = keep(record.config, resolve(module, given | agent), changes)
  # Older records store a different seed after each resume.
  began = {'seed': resolve(module, record.given | agent).seed, 'run_dir': path}
  if run_directory.absolute(config.run_dir) == path:
    began['run_dir'] = config.run_dir
  older = {'preset': preset_choice.DEFAULT}  # Records of versions without the option.
  check_changes(older | record.config | agent | began, config, changes)
  check(module, config)
  checkpoint = checkpoints.newest(checkpoints.directory(path))
  if checkpoint is None:
    raise ValueError(
      f'--resume={path} has no checkpoint yet; start a new run, in another --run_dir '
      'or with this one removed.'
    )
  # Without a summary, the final evaluation is missing.
  evaluated = run_directory.read_summary(path) is not None
  if checkpoint.counts['actor_steps'] >= config.num_steps and evaluated:
    raise ValueError(
      f'--resume={path} has done its {config.num_steps} actor_steps; raise --num_steps to continue.'
    )
  # Counting resumes gives the actors new seeds, so they do not replay the first episodes.
  config = dataclasses.replace(config, run_dir=path, resumes=len(record.commands))
  return Run(record.program, module, given, config)
