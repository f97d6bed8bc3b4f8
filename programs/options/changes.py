"""Which options may change when a run is resumed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from agents import options
from programs.options.inference import InferenceConfig
from programs.options.replay_config import ReplayConfig
from rundir import run_directory

# Options of every program that cannot change, in addition to the agent's.
_FIXED = {
  'env',
  'agent',
  'env_options',
  'preset',
  'init_from',
  'run_dir',
  'inference_nodes',  # It decides the name of the learner node and of its logs.
  'num_replay_shards',
  'batch_size',
  'seed',
}
# Options of a single program that can change.
_FREE = {'num_devices', 'num_workers', 'queue_size', 'replay_checkpoint_period'}
# Options derived from those of the resumed run, unless given; see `estimates.with_decay`.
_FOLLOWING = {'learning_rate_decay_steps', 'temperature_decay_steps'}
# Options that are set for a resumed run separately.
_OWN = {'seed', 'run_dir'}


def keep(recorded: dict[str, Any], config: Any, names: Iterable[str]) -> Any:
  """Returns the config of a resumed run, with the recorded values of options that may not change.

  The resuming version may have different presets and defaults.

  Args:
    recorded: as in `check_changes`.
    config: as `configs.choose` returns it for the flags in this version.
    names: the options that the user gave on resume.
  """
  kept = fixed(config).keys() & recorded.keys() - set(names)
  return options.replace(
    config, **{name: run_directory.option_value(recorded[name]) for name in kept}
  )


def with_newer_options(recorded: dict[str, Any], defaults: Any) -> dict[str, Any]:
  """Returns a record with the options that its version lacked.

  They have their defaults, with which a run does what it did before; a preset may set others by now.
  """
  return options.flatten(defaults) | recorded


def check_types(recorded: dict[str, Any], defaults: Any) -> None:
  """Raises ValueError, one sentence, if a recorded value cannot be one of its option."""
  for name, default in options.flatten(defaults).items():
    kind = type(default)
    kinds = {tuple: (list, tuple), float: (int, float)}.get(kind, (kind,))
    if not isinstance(value := recorded.get(name, default), kinds):
      raise ValueError(f'its {name} is {value!r}, not a {kind.__name__}.')
    entries = value if isinstance(value, list | tuple) else ()
    if not all(isinstance(each, int | str) for each in entries):
      raise ValueError(f'its {name} is {value!r}, not a list of whole numbers.')


def check_changes(recorded: dict[str, Any], config: Any, names: Iterable[str]) -> None:
  """Checks that a resumed run changes only options that may change.

  Resources may change; the environment, the agent and the rest of the learning problem may not. An
  option may be given its recorded value again.

  Args:
    recorded: option name to recorded value; lists for tuples.
    config: every option of the resumed run.
    names: the options that the user gave on resume.

  Raises:
    ValueError: one sentence that names the first flag that may not change.
  """
  for name in sorted(set(names) - _may_change()):
    value, before = options.value(config, name), recorded.get(name)
    if value != run_directory.option_value(before):
      text = ','.join(map(str, value)) if isinstance(value, tuple) else value
      raise ValueError(
        f'--{name}={text} cannot change when a run is resumed, where it was {before!r}; '
        'leave it out, or start a new run, with the parameters of this one by --init_from.'
      )


def check_items(before: Any, config: Any) -> None:
  """Checks that the items of a replay that is restored have as many unrolls as the run will read.

  Args:
    before: the config with the recorded options.
    config: that of the resumed run.

  Raises:
    ValueError: they have not; one sentence.
  """
  if not isinstance(before, ReplayConfig) or not before.replay.checkpoint_period:
    return
  if (unrolls := config.unrolls_per_item) != before.unrolls_per_item:
    raise ValueError(
      f'a group of environments would have {config.env_group_size}, and an item of replay {unrolls} '
      f'unrolls, where the restored replay has items of {before.unrolls_per_item}; leave out '
      '--envs_per_actor, --env_groups and --actors_as_threads, or start a new run.'
    )


def fixed(config: Any) -> dict[str, Any]:
  """Returns the options that stay the same for the whole run, with their values."""
  values = options.flatten(config)
  names = values.keys() - _may_change() - _FOLLOWING - _OWN
  return {name: values[name] for name in sorted(names)}


def _may_change() -> set[str]:
  return options.flatten(InferenceConfig()).keys() - _FIXED | _FREE
