"""The saved parameters of a run, as flax serialises them: final, of checkpoints, of its beginning.

Nothing here imports JAX. The parameters in a checkpoint are cut out as bytes.
"""

from __future__ import annotations

import dataclasses
import os

import msgpack

from rundir import checkpoints, files, final_params, run_end

FINAL = 'final'
NEWEST = 'newest'


@dataclasses.dataclass(frozen=True)
class SavedParams:
  """Saved parameters of a run.

  Attributes:
    path: the file that they come from.
    counts: actor_steps, environment_frames and learner_steps of a checkpoint; {} for other files.
    content: nested dictionaries of arrays, serialised.
  """

  path: str
  counts: dict[str, int]
  content: bytes


def read(run_dir: str, which: str = '') -> SavedParams:
  """Reads parameters of a run.

  Args:
    run_dir: the run directory.
    which: 'final'; 'newest' for the newest checkpoint; the learner_steps of a checkpoint; '' for the
      final parameters if the run has ended, else the newest. A run that goes on after its end still has
      final parameters, those of that end.

  Raises:
    ValueError: if they do not exist or cannot be read; one sentence.
  """
  final = final_params.path(run_dir)
  has_final = os.path.exists(final)
  kept = checkpoints.steps(checkpoints.directory(run_dir))
  if not has_final and not kept:
    raise ValueError(
      f'{run_dir} has no parameters yet; a run writes the first ones with a checkpoint, after '
      '--checkpoint_period seconds of training, or at its end.'
    )
  which = which or (FINAL if has_final and (run_end.has_ended(run_dir) or not kept) else NEWEST)
  if which == FINAL and has_final:
    return _of_file(final)
  if which == NEWEST and kept:
    checkpoint = checkpoints.newest(checkpoints.directory(run_dir))
    assert checkpoint is not None
  elif which.isdecimal() and int(which) in kept:
    checkpoint = checkpoints.read(kept[int(which)])
  else:
    there = ([FINAL] if has_final else []) + list(map(str, kept))
    raise ValueError(f'--checkpoint={which} does not exist; {run_dir} has: {", ".join(there)}.')
  return SavedParams(checkpoint.path, checkpoint.counts, _params_of(checkpoint))


def write_initial(run_dir: str, params: SavedParams) -> None:
  """Writes the parameters that a new run begins with into its directory."""
  files.write(_initial_path(run_dir), params.content)


def has_initial(run_dir: str) -> bool:
  """Returns whether a run began with parameters of another run."""
  return os.path.exists(_initial_path(run_dir))


def read_initial(run_dir: str) -> SavedParams:
  """Returns the parameters of another run that a run began with.

  Raises:
    ValueError: if they cannot be read; one sentence.
  """
  return _of_file(_initial_path(run_dir))


def _initial_path(run_dir: str) -> str:
  return os.path.join(run_dir, 'params', 'initial.msgpack')


def _of_file(path: str) -> SavedParams:
  try:
    with open(path, 'rb') as f:
      return SavedParams(path, {}, f.read())
  except OSError as error:
    raise ValueError(f'{path} cannot be read: {error.strerror}.') from error


def _params_of(checkpoint: checkpoints.Checkpoint) -> bytes:
  try:
    state = msgpack.unpackb(checkpoint.state, strict_map_key=False)
    # Anakin's checkpoints contain the environments in addition to the learner's state.
    return msgpack.packb(state.get('learner', state)['params'])
  except Exception as error:  # msgpack raises many types.
    raise ValueError(f'{checkpoint.path} holds no parameters ({error!r}).') from error
