"""launch.py --seeds: a program once for each seed, and a table of the results."""

from __future__ import annotations

import dataclasses

from absl import flags

from environments import user_file
from launchers import streams
from programs import plan
from programs.options import config_file
from rundir import run_directory
from sweeps import planning, prepare, runner, spec, table

# Flags that this command takes itself.
_OWN = {'seeds', 'run_dir', 'dry_run', 'config'}


def run() -> int:
  """Runs the program of the parsed flags for each of --seeds; returns the exit code.

  RUN_DIR/seed_1 is the directory of the first run. The same command with the same --run_dir continues
  where it was stopped, and runs again what failed.

  Raises:
    ValueError: the flags are invalid, or not for several seeds; one sentence.
    OSError: the directory cannot be written.
  """
  plan.learning_program('seeds')
  known = flags.FLAGS
  text, dry_run = plan.SEEDS.value, known['dry_run'].value
  given_dir = known['run_dir'].value or ''
  given = {
    name: config_file.text(known[name].value)
    for name in known
    if known[name].present and name not in _OWN
  }
  for name in given:
    if name in planning.OURS:
      raise ValueError(f'--{name} is for a single run; leave it out, or leave --seeds out.')
  alone = spec.seeds_alone(text, given, '', '--seeds')
  job = planning.job(alone.command({}, alone.seeds[0]))
  program, env = user_file.title(job.name), user_file.title(job.config['env'])
  sweep = dataclasses.replace(alone, title=f'{program} on {env}')
  jobs, why = prepare.checked(sweep)
  default = run_directory.default_path(program, env)
  directory = run_directory.absolute(given_dir or default)
  streams.say(f'{len(sweep.seeds)} seeds, {jobs} runs at once ({why}), {directory}')
  if dry_run:
    prepare.check_directory(sweep, directory)
    return 0
  code, rows, said = runner.run(
    sweep, directory, prepare.claim(sweep, directory), jobs, retry_failed=True
  )
  streams.say('\n'.join(['', *table.as_markdown(sweep, rows)]).rstrip())
  streams.say(said)
  if code >= 128:
    streams.say(f'to resume: the same command, with --run_dir={directory}')
  return code
