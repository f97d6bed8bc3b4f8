"""Builds a job from the flags: options, graph and placement, all checked."""

from __future__ import annotations

import dataclasses
import math

from absl import flags

from environments import own_file
from launchers import placement_file
from launchers.launcher import Job, Launcher
from programs import arithmetic, check, preset_list, registry, runs

PROGRAM = flags.DEFINE_string(
  'program',
  'sebulba',
  f'what to launch: {", ".join(registry.PROGRAMS)}, or your own, path/to/mine.py:make_program',
)
_PLACEMENT = flags.DEFINE_string(
  'placement', '', 'YAML or JSON file, {group: {field: value}}, that changes where groups run'
)
_RESUME = flags.DEFINE_string(
  'resume', '', 'directory of a run to resume from its newest checkpoint'
)
_NODE_TIMEOUT = flags.DEFINE_float(
  'node_timeout',
  300.0,
  'seconds without a heartbeat, or without progress, after which a node is killed',
  lower_bound=1.0,
)


def plan(launcher: Launcher, dry_run: bool, drawing: str) -> Job:
  """Returns the job that the flags describe. The graph is built once, for the run directory.

  Args:
    launcher: runs the job.
    dry_run: True if the job is not to be started.
    drawing: the file for a picture of the graph, or ''.

  Raises:
    ValueError: if the flags are invalid; one sentence, or one for each problem of the graph.
  """
  if not math.isfinite(_NODE_TIMEOUT.value):
    raise ValueError(f'--node_timeout={_NODE_TIMEOUT.value} must be a finite number.')
  resumes = bool(_RESUME.value)
  if resumes and launcher.resume_refusal:
    raise ValueError(launcher.resume_refusal)
  if resumes:
    run = runs.resumed_run(_RESUME.value, PROGRAM.value if PROGRAM.present else '')
    config = run.config
  else:
    run = runs.new_run(PROGRAM.value)
    titles = own_file.title(run.program), own_file.title(run.config.env)
    run_dir = launcher.run_dir(run.config.run_dir, *titles, dry_run=dry_run)
    config = dataclasses.replace(run.config, run_dir=run_dir)
  placement = run.module.placement(config)
  if _PLACEMENT.value:
    placement = placement_file.override(placement, _PLACEMENT.value)
  program = run.module.make_program(config)
  cycles = getattr(run.module, 'CYCLES', ())
  check.check(program, placement, cycles, pickled=launcher.pickles_nodes)
  job = Job(
    name=run.program,
    program=program,
    placement=placement,
    given=run.given,
    config=config,
    resumed=resumes,
    node_timeout=_NODE_TIMEOUT.value,
    notes=(
      preset_list.in_effect(run.module, config, run.given),
      f'learning: {arithmetic.describe(config) or "defined by the program"}',
      f'picture: {drawing or "with --graph=graph.svg, or .md for Mermaid"}',
    ),
    warnings=arithmetic.warnings(config),
  )
  launcher.check(job, dry_run)
  return job
