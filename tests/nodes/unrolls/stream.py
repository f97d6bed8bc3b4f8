"""Streams of rows whose values tell their number, and recordings of them."""

from __future__ import annotations

import time

import jax
import numpy as np

from agents.types import FIRST, LAST, MID, Timestep, Unroll
from nodes.unrolls.assembler import CoreStateRows, UnrollAssembler
from nodes.unrolls.packing import UNROLL_ID, Columns
from nodes.unrolls.recorder import UnrollRecorder
from rundir import recorded_unrolls
from rundir.recorded_unrolls import RecordingOptions

NUM_ENVS = 3


def row(number, length):
  """Returns row `number` of every environment; environment e has episodes of `length + e` rows.

  The observation is 1000 e + number, the action 10 times it, and the reward the observation plus a half.
  Odd episodes terminate, even ones are truncated.
  """
  env = np.arange(NUM_ENVS)
  episode, place = np.divmod(number, length + env)
  last = place == length + env - 1
  step_type = np.where(place == 0, FIRST, np.where(last, LAST, MID)).astype(np.uint8)
  observation = (1000 * env + number).astype(np.float32)
  reward = np.where(place == 0, 0, observation + 0.5).astype(np.float32)
  discount = np.where(last & (episode % 2 == 1), 0, 1).astype(np.float32)
  timestep = Timestep(step_type, reward, discount, observation[:, None])
  return timestep, (10 * observation[:, None]).astype(np.float32)


def unrolls(rows, period, count, length=5):
  """Yields what a program with unrolls of `rows` rows every `period` rows writes, `[N, L, ...]` each."""
  assembler = UnrollAssembler(NUM_ENVS, rows, period)
  for number in range(count):
    timestep, action = row(number, length)
    state = CoreStateRows({'h': np.zeros((NUM_ENVS, 7), np.float32)}, 0, NUM_ENVS)
    extras = {'logits': np.full((NUM_ENVS, 2), number, np.float32)}
    if (finished := assembler.append(timestep, action, extras, number, state)) is not None:
      yield jax.tree.map(np.array, finished)
      assembler.release(finished)


def layout(rows):
  """Returns the columns of such unrolls."""
  examples = next(unrolls(rows, rows - 1, 2 * rows))
  return Columns(jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), examples))


def recorder(run_dir, rows, period, **options):
  """Returns a recorder of such unrolls."""
  given = {'max_bytes': 1 << 30, 'chunk_seconds': 1e9} | options
  return UnrollRecorder(layout(rows), period + 1, RecordingOptions(str(run_dir), **given))


def record(run_dir, rows, period, count, length=5, first_id=0, **options):
  """Records a stream of `count` rows."""
  recording = recorder(run_dir, rows, period, **options)
  for number, unroll in enumerate(unrolls(rows, period, count, length)):
    recording.record(columns(unroll, first_id + number * NUM_ENVS))
  recording.close()
  return recording


def columns(unroll: Unroll, first_id):
  """Returns the columns of unrolls as their writer has them."""
  named = Columns(jax.tree.map(lambda x: x[0], unroll)).flatten(unroll)
  return named | {UNROLL_ID: np.arange(first_id, first_id + NUM_ENVS)}


def ids(run_dir):
  """Returns the ids of all recorded unrolls."""
  return [
    int(i)
    for path in recorded_unrolls.chunks(str(run_dir))
    for i in recorded_unrolls.read_chunk(path, [UNROLL_ID])[UNROLL_ID]
  ]


if __name__ == '__main__':  # Records without end, for a test that kills it.
  import sys

  endless = recorder(sys.argv[1], 2, 1, chunk_bytes=4000)
  for n, some in enumerate(unrolls(2, 1, 10**9)):
    endless.record(columns(some, NUM_ENVS * n))
    if n % 50 == 0:
      time.sleep(0.001)
