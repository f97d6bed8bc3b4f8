"""Runs a program on bsuite's experiments, one launch per id, and writes bsuite's own result files.

python -m benchmarks.bsuite --program=r2d2 --ids='memory_len/*,catch/*' --results=DIR
python -m benchmarks.bsuite --results=DIR --jobs=2 -- --core=lstm --learning_rate=1e-3

Flags after `--` go to launch.py. bsuite counts the episodes of a single environment, and the agent must
learn from all of them. So a launch has one actor with one environment and no evaluator, and ends with
bsuite's last episode. DIR gets one of bsuite's CSV files for each finished id. The same command resumes
a stopped sweep; it restarts the ids that were in progress.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fnmatch
import itertools
import json
import os
import sys
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from absl import app, flags
from bsuite import sweep

from agents import options
from environments import errors
from environments.bsuite_record import csv_path
from programs import registry as programs
from programs.options import configs
from programs.options import flags as config_flags
from rundir import directory_lock, run_directory
from sweeps.commands import Command
from viewing import output

# One environment, and the learner trains on its every step. The environment ends the run: no experiment
# has num_steps steps. Without checkpoints a crash of the learner or of replay also ends the run, so no
# step is learned from twice.
PROTOCOL = {
  'num_replicas': 1,
  'num_actors': 1,
  'envs_per_actor': 1,
  'env_groups': 1,
  'eval_envs': 0,
  'num_steps': 1_000_000_000,
  'checkpoint_period': 0,
}
_OURS = {*PROTOCOL, 'program', 'env', 'env_options', 'run_dir', 'resume', 'dry_run'}
_RECORD = 'sweep.json'


@dataclasses.dataclass(frozen=True)
class Sweep:
  """The options that all launches of a sweep share.

  Attributes:
    program: name of the program.
    flags: further flags for launch.py.
    episodes: episodes of each id; 0 for bsuite's number.
  """

  program: str
  flags: list[str]
  episodes: int

  def check(self) -> None:
    """Raises ValueError, one sentence, if no launch with these options could be part of a sweep."""
    if 'bsuite' not in programs.load(self.program).environments.families():
      raise ValueError(f'--program={self.program} has no environments of bsuite; try r2d2.')
    for flag in self.flags:
      name = flag.lstrip('-').partition('=')[0]
      if flag.startswith('-') and {name, name.removeprefix('no')} & _OURS:
        raise ValueError(f'--{name} after -- is set by the sweep; leave it out.')

  def options_set_by_rules(self, bsuite_id: str) -> list[str]:
    """Returns flags for what the preset's rules choose at the preset's num_steps, not the protocol's."""
    module = programs.load(self.program)
    has = options.flatten(module.Config()).keys()
    values = {name: value for name, value in PROTOCOL.items() if name in has - {'num_steps'}}
    config = configs.resolve(module, {**values, 'env': f'bsuite:{bsuite_id}'})
    return [
      f'--{name}={value}' for name, value in configs.options_set_by_rules(module, config).items()
    ]

  def take(self, directory: str) -> None:
    """Makes the results directory and locks it for this process.

    Raises:
      ValueError: another sweep uses the directory, or it holds the results of another sweep.
    """
    if ',' in directory:
      raise ValueError(f'--results={directory} must not have a comma in it.')
    path = os.path.join(directory, _RECORD)
    try:
      os.makedirs(directory, exist_ok=True)
      directory_lock.take(directory)
      if os.path.exists(path):
        with open(path) as f:
          record = json.load(f)
        if record != dataclasses.asdict(self):
          raise ValueError(
            f'--results={directory} has results of {_command(record)}; give the same options, or name a '
            'new directory.'
          )
      else:
        with open(path, 'w') as f:
          json.dump(dataclasses.asdict(self), f, indent=2)
    except BlockingIOError as error:
      raise ValueError(
        f'--results={directory} is in use by a sweep that is still running.'
      ) from error
    except OSError as error:
      raise ValueError(f'--results={directory} cannot be written: {error.strerror}.') from error


def _command(record: dict[str, Any]) -> str:
  episodes = f' --episodes={record["episodes"]}' if record['episodes'] else ''
  return ' '.join([f'--program={record["program"]}{episodes} --', *record['flags']])


class Launch(Command):
  """A launch.py process for one id; its output and run directory are under `runs/` in the results."""

  def __init__(self, common: Sweep, results: str, bsuite_id: str):
    """Starts launch.py."""
    self.id = bsuite_id
    self._results = results
    run_dir = _run_dir(results, bsuite_id, len(run_dirs(results, bsuite_id)) + 1)
    self._recorded = os.path.join(run_dir, 'bsuite')
    options = f'results_dir={self._recorded},episodes={common.episodes}'
    arguments = [
      *(f'--{name}={value}' for name, value in PROTOCOL.items()),
      f'--program={common.program}',
      f'--env=bsuite:{bsuite_id}',
      f'--env_options={options}',
      f'--run_dir={run_dir}',
    ]
    super().__init__(
      ['launch.py', *common.options_set_by_rules(bsuite_id), *common.flags, *arguments],
      f'{run_dir}.log',
    )

  def ended(self) -> bool:
    """Returns whether the launch ended. After exit code 0, moves its record to the results."""
    code = self.exit_code()
    if code == 0:
      with contextlib.suppress(FileNotFoundError):
        os.replace(csv_path(self._recorded, self.id), csv_path(self._results, self.id))
    return code is not None


def _run_dir(results: str, bsuite_id: str, number: int) -> str:
  name = bsuite_id.replace(sweep.SEPARATOR, '-')
  return os.path.join(results, 'runs', f'{name}.{number}')


def run_dirs(results: str, bsuite_id: str) -> list[str]:
  """Returns the run directories of all launches of an id, the first launch first."""
  numbered = (_run_dir(results, bsuite_id, number) for number in itertools.count(1))
  return list(itertools.takewhile(lambda run_dir: os.path.exists(f'{run_dir}.log'), numbered))


def matching(patterns: list[str]) -> list[str]:
  """Returns the bsuite ids that match any pattern, in bsuite's order.

  Raises:
    ValueError: a pattern matches no id.
  """
  for pattern in patterns:
    if not fnmatch.filter(sweep.SWEEP, pattern):
      hint = errors.did_you_mean(
        pattern, [*sweep.SWEEP, *(f'{e}/*' for e in experiments(sweep.SWEEP))]
      )
      raise ValueError(f'--ids: {pattern!r} names no id of bsuite{hint}.')
  return [i for i in sweep.SWEEP if any(fnmatch.fnmatchcase(i, p) for p in patterns)]


def experiments(ids: tuple[str, ...] | list[str]) -> list[str]:
  """Returns the experiments that ids belong to."""
  return list(dict.fromkeys(i.split(sweep.SEPARATOR)[0] for i in ids))


def is_done(results: str, bsuite_id: str) -> bool:
  """Returns whether the results have this id."""
  return os.path.exists(csv_path(results, bsuite_id))


def run(common: Sweep, results: str, ids: list[str], jobs: int) -> list[Launch]:
  """Launches all ids without a result, `jobs` at a time; returns the failed launches.

  Args:
    common: shared options.
    results: results directory.
    ids: all ids of the sweep.
    jobs: number of concurrent launches.
  """
  waiting = [i for i in ids if not is_done(results, i)]
  if len(waiting) < len(ids):
    print(f'{len(ids) - len(waiting)} of {len(ids)} ids are already done', flush=True)
  running: list[Launch] = []
  failed: list[Launch] = []
  try:
    while waiting or running:
      while waiting and len(running) < jobs:
        running.append(Launch(common, results, waiting.pop(0)))
        print(f'{running[-1].id}: started, {running[-1].log}', flush=True)
      for launch in [launch for launch in running if launch.ended()]:
        running.remove(launch)
        if is_done(results, launch.id):
          print(f'{launch.id}: done in {launch.seconds():.0f} s', flush=True)
        else:
          failed.append(launch)
          print(f'{launch.id}: failed, {launch.last_words()}', flush=True)
      time.sleep(0.1)
  finally:
    for launch in running:
      launch.stop()
    for launch in running:
      launch.wait()
  return failed


class Score(NamedTuple):
  """bsuite's score of an experiment.

  Attributes:
    experiment: its name.
    score: in [0, 1].
    done, ids: number of its ids with a result, and of all its ids.
    finished: whether the results have bsuite's number of episodes.
  """

  experiment: str
  score: float
  done: int
  ids: int
  finished: bool


def scores(results: str) -> list[Score]:
  """Returns the score of each experiment that has results in a directory."""
  from bsuite.experiments import summary_analysis
  from bsuite.logging import csv_load

  def count(ids: Sequence[str], experiment: str) -> int:
    return sum(i.startswith(f'{experiment}{sweep.SEPARATOR}') for i in ids)

  done = [i for i in sweep.SWEEP if is_done(results, i)]
  if not done:
    return []
  table, _ = csv_load.load_bsuite(results)
  return [
    Score(
      row.bsuite_env,
      float(row.score),
      count(done, row.bsuite_env),
      count(sweep.SWEEP, row.bsuite_env),
      bool(row.finished),
    )
    for row in summary_analysis.bsuite_score(table).itertuples()
  ]


def show_scores(results: str) -> None:
  """Prints bsuite's score of each experiment that has results."""
  found = scores(results)
  if found:
    print(f'\n{"experiment":20} {"score":>6}   ids')
  for made in found:
    unfinished = '' if made.finished else "   (fewer than bsuite's episodes)"
    print(f'{made.experiment:20} {made.score:6.3f}   {made.done} of {made.ids}{unfinished}')


def main(argv: list[str]) -> int:
  """Runs the sweep; returns the exit code."""
  common = Sweep(flags.FLAGS.program, argv[1:], flags.FLAGS.episodes)
  results = run_directory.absolute(flags.FLAGS.results)
  try:
    if not flags.FLAGS.ids:
      raise ValueError(
        "--ids is missing; give ids or patterns, such as --ids='memory_len/*,catch/0'."
      )
    ids = matching(flags.FLAGS.ids)
    common.check()
    common.take(results)
  except ValueError as error:
    print(f'error: {error}', file=sys.stderr)
    return 2
  failed = run(common, results, ids, flags.FLAGS.jobs)
  show_scores(results)
  if common.episodes:
    print(
      f"\n--episodes={common.episodes}: these are not bsuite's results, which take more episodes"
    )
  if failed:
    print(f'\nfailed: {len(failed)} of {len(ids)} ids', file=sys.stderr)
    for launch in failed:
      print(f'  {launch.id}: {launch.last_words()} ({launch.log})', file=sys.stderr)
  return 1 if failed else 0


if __name__ == '__main__':
  flags.DEFINE_string('program', 'sebulba', 'program to launch: sebulba or r2d2')
  flags.DEFINE_list('ids', None, "bsuite ids, or patterns such as 'memory_len/*'; * is all")
  flags.DEFINE_string('results', None, 'results directory', required=True)
  flags.DEFINE_integer('jobs', 1, 'number of concurrent launches', lower_bound=1)
  flags.DEFINE_integer(
    'episodes', 0, "episodes of each id, for smoke runs; 0: bsuite's number", lower_bound=0
  )
  app.run(lambda argv: output.run(lambda: main(argv)), flags_parser=config_flags.parse_or_exit)
