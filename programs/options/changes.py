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


def check_changes(recorded: dict[str, Any], config: Any, names: Iterable[str]) -> None:
  """Checks that options of an earlier run may change when it is resumed.

  How it is run may, what it learns and from what may not. To give the same value again is no change.

  Args:
    recorded: name to value, as it was; lists for tuples.
    config: every option, as it is to be.
    names: of the options that were given anew.

  Raises:
    ValueError: one sentence that names the first flag that may not.
  """
  may_change = {f.name for f in dataclasses.fields(InferenceConfig)} - _FIXED | _FREE
  for name in sorted(set(names) - may_change):
    value, before = getattr(config, name), recorded.get(name)
    if value != (tuple(before) if isinstance(before, list) else before):
      text = ','.join(map(str, value)) if isinstance(value, tuple) else value
      raise ValueError(
        f'--{name}={text} cannot change when a run is resumed, where it was {before!r}; '
        'leave it out, or start a new run.'
      )
