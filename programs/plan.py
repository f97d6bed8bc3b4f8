"""Builds a job from the flags: options, graph and placement, all checked."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from absl import flags

from agents import options
from environments import hidden_modules, user_file
from launchers import engine_flags, placement_file
from launchers.engine import Engine, Job, env_title
from launchers.node_output import FILES, TERMINAL
from launchers.options import LONGEST_SECONDS
from launchers.placement import shell_warnings
from programs import (
  agent_check,
  check,
  estimates,
  preset_list,
  profile,
  registry,
  remake,
  runs,
  warm_start,
)
from programs.options import bsuite_results, changes, config_file, effects, user_agent, user_torso
from rundir import versions

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
SEEDS = flags.DEFINE_string(
  'seeds',
  '',
  'run the program once for each seed, into RUN_DIR/seed_1 and so on, and write a table: a number of '
  'seeds, or seeds such as 1,2,7',
)
_NODE_TIMEOUT = flags.DEFINE_float(
  'node_timeout',
  300.0,
  'seconds without a heartbeat, or without progress, after which a node is killed',
  lower_bound=1.0,
  upper_bound=LONGEST_SECONDS,
)
_NODE_OUTPUT = flags.DEFINE_enum(
  'node_output',
  None,
  [FILES, TERMINAL],
  'where the output of nodes goes: files: to their logs in the run directory; terminal: to the terminal '
  'too, each line after the name of its node; default: files, but terminal for a Launchpad program of '
  'your own',
)


def learning_program(flag: str) -> Any:
  """Returns the module of --program.

  Args:
    flag: name of the flag that asks for it, for the message.

  Raises:
    ValueError: if the program does not exist, or is a user's own Launchpad program; one sentence.
  """
  module = registry.load(PROGRAM.value)
  if not registry.learns(module):
    raise ValueError(
      f'--{flag} is for programs that learn, and --program={PROGRAM.value} is a Launchpad program of '
      'your own; leave it out.'
    )
  return module


def plan(engine: Engine, dry_run: bool, drawing: str) -> Job:
  """Returns the job that the flags describe. The graph is built once, for the run directory.

  Args:
    engine: runs the job.
    dry_run: True if the job is not to be started.
    drawing: the file for a picture of the graph, or ''.

  Raises:
    ValueError: if the flags are invalid; one sentence, or one for each problem of the graph.
  """
  for name in ('resume', 'placement', 'config'):
    if flags.FLAGS[name].present and not flags.FLAGS[name].value:
      raise ValueError(f'--{name}= names nothing; give it a value, or leave it out.')
  if not math.isfinite(_NODE_TIMEOUT.value):
    raise ValueError(f'--node_timeout={_NODE_TIMEOUT.value} must be a finite number.')
  resumes = bool(_RESUME.value)
  if resumes:
    program_name = PROGRAM.value if PROGRAM.present else ''
    run = runs.resumed_run(_RESUME.value, program_name, lock=not dry_run)
    config = run.config
  else:
    run = runs.new_run(PROGRAM.value)
    given = options.flatten(run.config)
    titles = user_file.title(run.program), env_title(given)
    run_dir = engine.run_dir(given['run_dir'], *titles, dry_run=dry_run)
    config = options.replace(run.config, run_dir=run_dir)
  learns = registry.learns(run.module)
  values = options.flatten(config)
  own_files = user_file.paths([run.program, *values.values()])
  of_agent: Sequence[str] = ()
  if learns:
    _check_reach(engine, config)
    if engine.on_this_machine:
      bsuite_results.check_directory(config)
    if not engine.repeats_plan:  # A pod repeats a plan whose agent was tried then.
      of_agent = agent_check.check(run, None if resumes else warm_start.source(run))
  placement = run.module.placement(config)
  if _PLACEMENT.value:
    placement = placement_file.override(placement, _PLACEMENT.value)
  program = run.module.make_program(config)
  cycles = getattr(run.module, 'CYCLES', ())
  check.check(program, placement, cycles, pickled=engine.sends_nodes)
  if engine.on_this_machine:
    check.check_replay(program)
  placement = profile.profiled(program, placement, values['run_dir'], engine)
  job = Job(
    name=run.program,
    program=program,
    placement=placement,
    given=run.given,
    config=values,
    resumed=resumes,
    node_timeout=_NODE_TIMEOUT.value,
    node_output=_node_output(engine, FILES if learns else TERMINAL),
    notes=(
      *(_learning_notes(run.module, config, run.given) if learns else [_options(config)]),
      f'picture: {drawing or "with --graph=graph.svg, or .md for Mermaid"}',
    ),
    warnings=[
      *of_agent,
      *(estimates.warnings(config) if learns else ()),
      *(effects.warnings(config, run.given) if learns else ()),
      *config_file.warnings(config, run.given),
      *hidden_modules.warnings(own_files),
      *shell_warnings(placement),
      *filter(None, [versions.unlike_the_lock()]),
    ],
    fixed=changes.fixed(config) if learns else {},
    remake=functools.partial(remake.remake, run.program, config) if learns else None,
    launch_flags=engine_flags.given(_PLACEMENT.name, _NODE_TIMEOUT.name, _NODE_OUTPUT.name),
    prepare=warm_start.place if learns else None,
    page_port=engine_flags.page_port(),
  )
  return dataclasses.replace(job, warnings=[*engine.check(job, dry_run), *job.warnings])


def _node_output(engine: Engine, default: str) -> str:
  if _NODE_OUTPUT.value is None:
    return FILES if _NODE_OUTPUT.name in engine.refuses else default
  return _NODE_OUTPUT.value


def _learning_notes(module: Any, config: Any, given: Mapping[str, Any]) -> Iterator[str]:
  yield preset_list.in_effect(module, config, given)
  yield f'learning: {estimates.describe(config) or "defined by the program"}'
  if module.make_agent is None:
    yield 'agent: not tried, since the file of the program has no make_agent(config)'


def _options(config: Any) -> str:
  """Returns the options of a user's own Launchpad program as flags."""
  values = options.flatten(config)
  words = [f'--{name}={preset_list.plain(v)}' for name, v in values.items() if name != 'run_dir']
  return ' '.join(['options:', *words]) if words else 'options: none'


def _check_reach(engine: Engine, config: Any) -> None:
  """Raises ValueError for options that name files here if the nodes plan for themselves elsewhere."""
  here = {
    'agent': user_agent.named(config),
    'torso': user_torso.named(config),
    'init_from': config.run.init_from,
    'offline_data': options.value(config, 'offline_data', ''),
  }
  for name, value in here.items():
    if value and not engine.sends_files:
      raise ValueError(
        f'--{name}={value} is on this machine, and this launcher sends no files to its nodes; use '
        '--launcher=local, ray or slurm.'
      )


def environments() -> str:
  """Returns the families of environments of the program in the flags, a line each."""
  families = learning_program('list_envs').environments.families()
  lines = [f'{family:12} {text}' for family, text in families.items()]
  return '\n'.join([*lines, 'or your own, --env=path/to/mine.py:make; see docs/extending.md'])
