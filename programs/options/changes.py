"""Which options may change when a run is resumed."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

from programs.options.inference import InferenceConfig

# Options of every program that cannot, beside those of the agent.
_FIXED = {
  'env',
  'env_options',
  'run_dir',
  'num_replicas',
  'inference_nodes',  # What learns has another name with it, and the logs of it.
  'num_replay_shards',
  'batch_size',
  'seed',
}
# Options of a single program that can.
_FREE = {'num_devices', 'replay_checkpoint_period'}
# Options that follow num_steps, which can change, unless they were given.
_FOLLOWING = {'learning_rate_decay_steps'}
# Options that a resumed run gets from elsewhere.
_OWN = {'seed', 'run_dir'}


def keep(recorded: dict[str, Any], config: Any, names: Iterable[str]) -> Any:
  """Returns the config of a resumed run, with what may not change as it was.

  Presets and defaults may be others in the version that resumes it.

  Args:
    recorded: as in `check_changes`.
    config: as the flags and this version have it.
    names: of the options that the user gave on resume.
  """
  fixed = {f.name for f in dataclasses.fields(config)} - _may_change() - _FOLLOWING - _OWN
  kept = {name: recorded[name] for name in fixed & recorded.keys() - set(names)}
  return dataclasses.replace(
    config, **{k: tuple(v) if isinstance(v, list) else v for k, v in kept.items()}
  )


def check_changes(recorded: dict[str, Any], config: Any, names: Iterable[str]) -> None:
  """Checks that options of an earlier run may change when it is resumed.

  How it is run may, what it learns and from what may not. To give the same value again is no change.

  Args:
    recorded: name to value, as it was; lists for tuples.
    config: every option, as it is to be.
    names: of the options that the user gave on resume.

  Raises:
    ValueError: one sentence that names the first flag that may not.
  """
  for name in sorted(set(names) - _may_change()):
    value, before = getattr(config, name), recorded.get(name)
    if value != (tuple(before) if isinstance(before, list) else before):
      text = ','.join(map(str, value)) if isinstance(value, tuple) else value
      raise ValueError(
        f'--{name}={text} cannot change when a run is resumed, where it was {before!r}; '
        'leave it out, or start a new run.'
      )


def _may_change() -> set[str]:
  return {f.name for f in dataclasses.fields(InferenceConfig)} - _FIXED | _FREE
