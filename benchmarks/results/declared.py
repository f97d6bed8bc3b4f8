"""What a list of results declares: tasks, and the rows of each, which are one system each."""

from __future__ import annotations

import dataclasses
import json
import posixpath
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from bsuite import sweep

from benchmarks import bsuite
from programs import registry
from programs.options import agent_choice, preset_choice

_NAME = re.compile(r'[a-z0-9_]+(-[a-z0-9_]+)*')
# Flags of launch.py that a row sets by its fields, or that would make its runs something else.
_OURS = {'program', 'env', 'num_steps', 'seed', 'run_dir', 'resume', 'dry_run', 'graph', 'launcher'}
DEFAULT_SEEDS = (1, 2, 3)
_BSUITE = 'bsuite:'
# Where the page's commands have the runs that others read.
_SHOWN_RUNS = 'runs/results'


@dataclasses.dataclass(frozen=True, kw_only=True)
class Published:
  """A published figure, quoted.

  Attributes:
    system: the system that reached it, with its algorithm.
    figure: as its source prints it; 'about' a number where it is read off a plot; '' for none.
    protocol: what it is a mean of, after how many steps, on which environment.
    source: where it is printed.
  """

  system: str
  figure: str
  protocol: str
  source: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
  """One system on one task; each seed is one run.

  Attributes:
    label: the row's name within its task, such as 'sebulba' or 'sebulba-lstm'.
    env: the environment, by the system's own name.
    budget: actor_steps of a run.
    seeds: the seeds of the runs.
  """

  label: str
  env: str
  budget: int
  seeds: tuple[int, ...] = DEFAULT_SEEDS

  def settings(self) -> dict[str, Any]:
    """Returns what a run depends on besides its seed, in JSON types; `seeds` are not part of it."""
    return {'env': self.env, 'budget': self.budget}

  def shown_command(self, name: str) -> str:
    """Returns the command of a run in one line; a row's `name` is 'task/label'."""
    raise NotImplementedError

  def check(self) -> None:
    """Raises ValueError, one sentence, if the row is not a valid declaration."""
    if not _NAME.fullmatch(self.label):
      raise ValueError(f'the label {self.label!r} must be lower-case words with hyphens between.')
    if self.budget < 1 or not self.seeds or len(set(self.seeds)) != len(self.seeds):
      raise ValueError(f'{self.label} needs a budget of at least 1 and distinct seeds.')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Launch(Row):
  """A program of ours, run by launch.py.

  Attributes:
    program: value of --program.
    flags: further flags of launch.py, such as '--core=lstm'.
    inputs: rows of the same task whose runs this row reads, by the flag that takes the directory of the
      run with the same seed, such as 'offline_data'.
  """

  program: str
  flags: tuple[str, ...] = ()
  inputs: Mapping[str, Launch] = dataclasses.field(default_factory=dict)

  def settings(self) -> dict[str, Any]:
    """Returns what a run depends on besides its seed, with the settings of the runs that it reads."""
    own = _program_settings(self.program, self.env, self.flags)
    read = {flag: row.settings() for flag, row in self.inputs.items()}
    return {**super().settings(), **own, **({'inputs': read} if read else {})}

  def arguments(self, seed: int, task_dir: str) -> list[str]:
    """Returns the flags of launch.py for a run, without its run directory.

    Args:
      seed: of the run.
      task_dir: directory of the task's runs, `<label>/<seed>` each.
    """
    ours = {
      'program': self.program,
      'env': self.env,
      'num_steps': self.budget,
      'seed': seed,
    }
    read = {
      flag: posixpath.join(task_dir, row.label, str(seed)) for flag, row in self.inputs.items()
    }
    flags = (f'--{name}={value}' for given in (ours, read) for name, value in given.items())
    return [*flags, *self.flags]

  def command(self, name: str, seed: int) -> list[str]:
    """Returns the words of a run's command, without its run directory and paths of this machine."""
    task_dir = posixpath.join(_SHOWN_RUNS, posixpath.dirname(name))
    return ['launch.py', *self.arguments(seed, task_dir)]

  def shown_command(self, name: str) -> str:
    """Returns the command of the first seed."""
    return ' '.join(self.command(name, self.seeds[0]))

  def check(self) -> None:
    """Raises ValueError, one sentence, if the row is not a valid declaration."""
    super().check()
    fields = _OURS | self.inputs.keys()
    for flag in self.flags:
      option = flag.lstrip('-').partition('=')[0]
      if not flag.startswith('--') or {option, option.removeprefix('no')} & fields:
        raise ValueError(
          f'{self.label} has {flag!r} in its flags; give it as a field, or leave it out.'
        )
    for flag, row in self.inputs.items():
      if missing := set(self.seeds) - set(row.seeds):
        raise ValueError(
          f'{self.label} reads the run of {row.label} by --{flag} for seed {min(missing)}; add the seed '
          f'to {row.label}.'
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Experiment(Row):
  """An experiment of bsuite under its protocol: one launch for each of its ids.

  `env` has all ids, such as 'bsuite:catch/*'. `budget` counts the episodes of each id. The final return
  is bsuite's score.

  Attributes:
    program: value of --program.
    flags: further flags of launch.py.
  """

  program: str
  flags: tuple[str, ...] = ()

  def settings(self) -> dict[str, Any]:
    """Returns what a run depends on besides its seed."""
    first = _BSUITE + self.ids()[0]  # The ids of an experiment share their preset.
    return {**super().settings(), **_program_settings(self.program, first, self.flags)}

  def ids(self) -> list[str]:
    """Returns the ids in bsuite's order.

    Raises:
      ValueError: there are none.
    """
    return bsuite.matching([self.env.removeprefix(_BSUITE)])

  def arguments(self, seed: int, results: str, *always: str) -> list[str]:
    """Returns the words of a run's command.

    Args:
      seed: of the run's agents; bsuite's environments have their own.
      results: directory of its results.
      always: flags of `benchmarks.bsuite` that are not part of the row.
    """
    whole = self.budget == sweep.EPISODES[self.ids()[0]]
    return [
      *('-m', 'benchmarks.bsuite', f'--program={self.program}'),
      *(f'--ids={self.env.removeprefix(_BSUITE)}', f'--results={results}'),
      *([] if whole else [f'--episodes={self.budget}']),
      *always,
      *('--', f'--seed={seed}', *self.flags),
    ]

  def command(self, name: str, seed: int) -> list[str]:
    """Returns the words of a run's command, without paths of this machine."""
    return self.arguments(seed, posixpath.join(_SHOWN_RUNS, name, str(seed)))

  def shown_command(self, name: str) -> str:
    """Returns the command of the first seed."""
    return shlex.join(self.command(name, self.seeds[0]))

  def check(self) -> None:
    """Raises ValueError, one sentence, if the row is not a valid declaration."""
    super().check()
    bsuite.Sweep(self.program, list(self.flags), self.budget).check()
    experiments = bsuite.experiments(self.ids())
    if len(experiments) > 1:
      raise ValueError(f'{self.label} has ids of {" and ".join(experiments)}; make a row for each.')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Peer(Row):
  """Another system, run by a driver of `benchmarks.peers`.

  Attributes:
    peer: name of the system in `benchmarks.peers.systems.PEERS`.
    given: settings that the driver gets, by name.
    action_repeat: environment frames per step.
  """

  peer: str
  given: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  action_repeat: int = 1

  def settings(self) -> dict[str, Any]:
    """Returns what a run depends on besides its seed."""
    given = json.loads(json.dumps(dict(self.given)))
    return {**super().settings(), 'peer': self.peer, 'given': given}

  def shown_command(self, name: str) -> str:
    """Returns the command that runs this row, with the driver's settings."""
    given = json.dumps({'env': self.env, 'num_steps': self.budget, **self.given})
    return f'-m benchmarks.results {name}  # {self.peer}, given {given}'


def _program_settings(program: str, env: str, flags: Sequence[str]) -> dict[str, Any]:
  """Returns a program, its flags, and what its preset sets, in JSON types; a rule is its text."""
  words = (flag.lstrip('-').partition('=') for flag in flags)
  given = {name: value for name, _, value in words if name in ('agent', 'preset')}
  preset = given.pop('preset', preset_choice.DEFAULT)
  _, variant = agent_choice.chosen(registry.load(program), given)
  found = preset_choice.options(variant, env, preset)
  found.pop('num_steps', None)  # The budget replaces it.
  made = json.loads(json.dumps(found, default=lambda rule: rule.text))
  return {'program': program, 'flags': list(flags), 'preset': made}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task:
  """A task: rows that are compared with each other.

  Attributes:
    name: such as 'catch', or 'minatar/breakout' for a task of a group.
    title: its heading on the page.
    about: what is played, and what differs between the rows; Markdown.
    rows: the systems.
    thresholds: returns for which frames and wall time are wanted.
    published: figures of others.
    scale: the returns that count as 0 and 1 in the mean of the group; None to leave the task out of it.
    episodes: episodes of the final evaluation.
    missed: which rows stay below what was aimed at, and why, without figures; Markdown.
    measure: what the final number of a row is; Markdown.
  """

  name: str
  title: str
  about: str
  rows: tuple[Row, ...]
  thresholds: tuple[float, ...] = ()
  published: tuple[Published, ...] = ()
  scale: tuple[float, float] | None = None
  episodes: int = 100
  missed: str = ''
  measure: str = 'return'

  @property
  def group(self) -> str:
    """The group's name; '' for a task without group."""
    return self.name.rpartition('/')[0]

  def check(self) -> None:
    """Raises ValueError, one sentence, if the task is not a valid declaration."""
    if not all(map(_NAME.fullmatch, self.name.split('/'))):
      raise ValueError(f'the task {self.name!r} must be lower-case words with / between.')
    if self.thresholds and any(isinstance(row, Experiment) for row in self.rows):
      raise ValueError(f'{self.name}: bsuite records no times, so leave out thresholds.')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Group:
  """Several tasks that share a section of the page and a mean.

  Attributes:
    name: what the names of its tasks begin with.
    title: its heading.
    about: Markdown; where the scales of its tasks come from.
  """

  name: str
  title: str
  about: str


class Entry(NamedTuple):
  """A row with its task."""

  task: Task
  row: Row

  @property
  def name(self) -> str:
    """Such as 'minatar/breakout/sebulba'."""
    return f'{self.task.name}/{self.row.label}'
