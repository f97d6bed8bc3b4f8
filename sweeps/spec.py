"""What a sweep is, read from a YAML file: the flags that its runs share, trials, seeds, metric."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from environments import errors
from programs.options import config_file, early
from programs.options import flags as config_flags
from sweeps import planning, space
from sweeps.metrics import Metric
from sweeps.search import Listed, Search, Tpe
from sweeps.space import Axis

_SEARCHES = ('grid', 'random', 'tpe')
_ENTRIES = (
  *('config', 'flags', 'space', 'search', 'trials', 'search_seed', 'seeds', 'metric', 'metric_of'),
  *('goal', 'jobs', 'time_limit', 'title'),
)
_MOST_SEEDS = 1000
_MOST_TRIALS = 10_000


@dataclasses.dataclass(frozen=True)
class Sweep:
  """A checked sweep.

  Attributes:
    title: of its figure and its table.
    source: what begins the messages about it: the file, or the flag.
    flags: the flags that all runs share, as texts by name.
    axes: the space, by flag name; {} for a sweep over seeds alone.
    search: the source of its trials, in words.
    make_search: returns the search.
    trials: the trials; combinations that cover the space if the search is yet to choose them.
    chosen: whether the trials are known before the first run.
    seeds: of each trial.
    metric: what the trials are compared by.
    jobs: how many programs run at once; 0 for as many as the cores allow.
    time_limit: of a run, in seconds.
  """

  title: str
  source: str
  flags: Mapping[str, str]
  axes: Mapping[str, Axis]
  search: str
  make_search: Callable[[], Search]
  trials: Sequence[Mapping[str, Any]]
  chosen: bool
  seeds: Sequence[int]
  metric: Metric = dataclasses.field(default_factory=Metric)
  jobs: int = 0
  time_limit: float = math.inf

  def command(self, values: Mapping[str, Any], seed: int | None = None) -> list[str]:
    """Returns the flags of launch.py for a trial, without a directory, and without a seed if None."""
    named = {**self.flags, **values, **({} if seed is None else {'seed': seed})}
    return [f'--{name}={config_file.text(value)}' for name, value in named.items()]


def seeds_alone(text: str, given: Mapping[str, str], title: str, source: str) -> Sweep:
  """Returns a sweep over seeds, without a space.

  Args:
    text: a number of seeds, from 1 on, or the seeds with commas between.
    given: the flags that all runs share, as texts by name.
    title: of its figure and its table.
    source: begins the error messages.

  Raises:
    ValueError: `text` is neither; one sentence.
  """
  said = f'{source}={text}'
  parts = text.split(',')
  if not all(part.strip().isdecimal() for part in parts):
    raise ValueError(f'{said} must be a number of seeds, such as 5, or seeds, such as 1,2,7.')
  found = [int(part) for part in parts]
  return Sweep(
    title=title,
    source=said,
    flags=given,
    axes={},
    search='seeds alone',
    make_search=lambda: Listed([{}]),
    trials=[{}],
    chosen=True,
    seeds=_seeds(found if len(found) > 1 else found[0], said, ''),
  )


def load(path: str) -> dict[str, Any]:
  """Returns the entries of a file; defines the flags of the programs, of the user's own too if named.

  Raises:
    ValueError: the file cannot be read, or has an unknown entry; one sentence.
  """
  found = config_file.load(path, path)
  for name in found:
    if name not in _ENTRIES:
      near = errors.did_you_mean(name, _ENTRIES) or f'; there are: {", ".join(_ENTRIES)}'
      raise ValueError(
        f'{path}: there is no entry {name!r}{near}; flags of launch.py go in "flags".'
      )
  shared, config = _mapping(found, 'flags', path), _text(found, 'config', '', path)
  words = [f'--{name}={shared[name]}' for name in ('program', 'agent') if name in shared]
  axes = _mapping(found, 'space', path)
  if 'program' in axes:
    config_flags.define()
  else:
    config_flags.define(*early.choice([f'--config={config}', *words]), every_agent='agent' in axes)
  return found


def parse(found: Mapping[str, Any], path: str) -> Sweep:
  """Returns the sweep that a file describes; see docs/sweeps.md. All flags have to be defined.

  Args:
    found: the entries of the file.
    path: of the file; begins the error messages.

  Raises:
    ValueError: an entry is invalid; one sentence that names it and the fix.
  """
  shared, axes = _mapping(found, 'flags', path), _mapping(found, 'space', path)
  config = _text(found, 'config', '', path)
  given = dict(_split(word) for word in (config_file.words(config) if config else []))
  given.pop('seed', '')  # Of the run whose flags are repeated.
  for names, where in ((given, f'config: {config}'), (shared, 'flags'), (axes, 'space')):
    planning.check_names(names, f'{path}: {where}')
  for name in shared:
    if name in axes:
      raise ValueError(f'{path}: {name} is in both flags and space; remove it from one.')
  words = [config_file.word(f'{path}: flags', name, value) for name, value in shared.items()]
  given.update(map(_split, words))
  parsed = space.parse(axes, f'{path}: space')
  metric = Metric(
    _text(found, 'metric', Metric.name, path),
    _text(found, 'metric_of', Metric.of, path),
    _text(found, 'goal', Metric.goal, path),
  )
  metric.check(path)
  search, make_search, trials = _search(found, parsed, metric, path)
  given_seeds = found.get('seeds', 1)
  return Sweep(
    title=_text(found, 'title', path, path),
    source=path,
    flags={name: value for name, value in given.items() if name not in parsed},
    axes=parsed,
    search=search,
    make_search=make_search,
    trials=trials,
    chosen=found.get('search') != 'tpe',
    seeds=_seeds(given_seeds, f'{path}: seeds', f'; it is {given_seeds!r}'),
    metric=metric,
    jobs=_whole(found, 'jobs', 0, path),
    time_limit=_time_limit(found, path),
  )


def _search(
  found: Mapping[str, Any], axes: Mapping[str, Axis], metric: Metric, path: str
) -> tuple[str, Callable[[], Search], Sequence[Mapping[str, Any]]]:
  """Returns a search in words, what makes it, and trials to check before the first run."""
  kind = _text(found, 'search', 'grid', path)
  if kind not in _SEARCHES:
    near = errors.did_you_mean(kind, _SEARCHES) or f'; there are: {", ".join(_SEARCHES)}'
    raise ValueError(f'{path}: search: there is no {kind!r}{near}.')
  if kind == 'grid':
    for name in ('trials', 'search_seed'):
      if name in found:
        raise ValueError(
          f'{path}: {name} is not for a grid; leave it out, or add "search: random".'
        )
    trials = space.grid(axes, f'{path}: space')
    return f'a grid of {len(trials)}', lambda: Listed(trials), trials
  if 'trials' not in found:
    raise ValueError(f'{path}: trials is missing; set it to the number of trials of "{kind}".')
  number, seed = _whole(found, 'trials', 1, path), _whole(found, 'search_seed', 0, path)
  if number > _MOST_TRIALS:
    raise ValueError(f'{path}: trials is {number}; set it to at most {_MOST_TRIALS:,}.')
  if kind == 'random':
    drawn = space.draws(axes, number, seed)
    return f'{len(drawn)} at random', lambda: Listed(drawn), drawn
  make = lambda: Tpe(axes, number, seed, metric.goal)  # noqa: E731
  make()  # Optuna is installed.
  return f"{number} of Optuna's TPE", make, space.corners(axes)


def _seeds(value: Any, said: str, value_said: str) -> list[int]:
  """Returns seeds: from 1 to a number, or those of a list.

  Args:
    value: the number or the list.
    said: begins the error message.
    value_said: ends it.
  """
  seeds = list(range(1, value + 1)) if _is_whole(value) and value <= _MOST_SEEDS else value
  valid = isinstance(seeds, list) and seeds and all(map(_is_whole, seeds))
  if not valid or len(set(seeds)) < len(seeds):
    raise ValueError(
      f'{said} must be a number from 1 to {_MOST_SEEDS}, or a list of different whole '
      f'numbers{value_said}.'
    )
  return seeds


def _time_limit(found: Mapping[str, Any], path: str) -> float:
  value = found.get('time_limit', math.inf)
  if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
    raise ValueError(f'{path}: time_limit is {value!r}; set it to seconds, above 0.')
  return float(value)


def _is_whole(value: Any) -> bool:
  return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _whole(found: Mapping[str, Any], name: str, least: int, path: str) -> int:
  value = found.get(name, least)
  if not _is_whole(value) or value < least:
    raise ValueError(f'{path}: {name} is {value!r}; set it to a whole number, at least {least}.')
  return value


def _text(found: Mapping[str, Any], name: str, default: str, path: str) -> str:
  value = found.get(name, default)
  if not isinstance(value, str):
    raise ValueError(f'{path}: {name} is {value!r}; set it to a text.')
  return value


def _mapping(found: Mapping[str, Any], name: str, path: str) -> dict[str, Any]:
  value = found.get(name)
  if value is None:
    return {}
  if not isinstance(value, dict):
    raise ValueError(f'{path}: {name} is {value!r}; it must map flags to values.')
  return {str(key): each for key, each in value.items()}


def _split(word: str) -> tuple[str, str]:
  name, _, value = word.removeprefix('--').partition('=')
  return name, value
