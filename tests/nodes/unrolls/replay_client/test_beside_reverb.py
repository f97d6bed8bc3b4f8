"""Items that Reverb's own client inserts and this one samples, and the other way round."""

import itertools
import json
import os
import pathlib
import subprocess

import numpy as np
import pytest

from nodes.replay_server import interpreter
from nodes.unrolls.replay_client import ReplayClient
from nodes.unrolls.tables import PRIORITIZED, RateLimiter, Table
from tests.nodes.unrolls.replay_client.reverb_client import ROWS, STEPS
from tests.waiting import DEADLINE

ROOT = pathlib.Path(interpreter.PYTHON).parents[2]
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith('PYTHON')}


@pytest.fixture
def address(serve):
  return serve([Table('prioritized', PRIORITIZED, 20, RateLimiter(), priority_exponent=0.8)])


def reverb(address, what):
  """Runs Reverb's own client; returns what it prints."""
  command = [
    interpreter.PYTHON,
    '-m',
    'tests.nodes.unrolls.replay_client.reverb_client',
    address,
    what,
  ]
  run = subprocess.run(
    command, cwd=ROOT, env=ENVIRONMENT, capture_output=True, timeout=DEADLINE, check=True
  )
  return [json.loads(line) for line in run.stdout.splitlines()]


def sample(address, count):
  """Returns samples, with this client."""
  sampler = ReplayClient(address).sampler('prioritized', 20)
  samples = list(itertools.islice(sampler, count))
  sampler.close()
  return samples


def summary(samples):
  return {(s.key, s.priority, s.probability, s.table_size, _row(s)) for s in samples}


def _row(sample):
  return sample.columns[0].tobytes().hex()[:2000]


def test_rows_that_reverb_inserts(address):
  reverb(address, 'rows')
  samples = sample(address, 200)
  by_priority = {s.priority: s for s in samples}
  assert sorted(by_priority) == [number + 0.5 for number in range(len(ROWS))]
  weights = np.array(sorted(by_priority)) ** 0.8
  for number, row in enumerate(ROWS):
    found = by_priority[number + 0.5]
    np.testing.assert_array_equal(found.columns[0], row)
    assert found.probability == pytest.approx(weights[number] / weights.sum())
    assert found.table_size == len(ROWS)
  counts = [s.times_sampled for s in samples if s.priority == 6.5]
  assert counts == list(range(1, len(counts) + 1))
  assert summary(samples) == {tuple(s) for s in reverb(address, 'sample')}


def test_rows_that_this_client_inserts(address):
  writer = ReplayClient(address).writer()
  for number, row in enumerate(ROWS):
    writer.insert(np.array_split(row, 3) if number % 2 else [row], {'prioritized': number + 0.5})
  assert writer.flush(DEADLINE)
  writer.close()
  samples = sample(address, 200)
  by_priority = {s.priority: s for s in samples}
  for number, row in enumerate(ROWS):
    np.testing.assert_array_equal(by_priority[number + 0.5].columns[0], row)
  assert summary(samples) == {tuple(s) for s in reverb(address, 'sample')}


def test_several_columns_in_several_chunks_of_differences(address):
  reverb(address, 'steps')
  (found,) = sample(address, 1)
  for column, expected in zip(found.columns, zip(*STEPS, strict=True), strict=True):
    np.testing.assert_array_equal(column, np.stack(expected))
    assert column.dtype == expected[0].dtype


def test_the_table_is_as_it_was_made_and_filled(address):
  reverb(address, 'rows')
  sample(address, 1)
  info = ReplayClient(address).server_info(timeout=DEADLINE)['prioritized']
  limiter = info.rate_limiter_info
  assert (info.name, info.max_size, info.max_times_sampled) == ('prioritized', 20, 0)
  assert info.current_size == limiter.insert_stats.completed == len(ROWS)
  assert limiter.sample_stats.completed >= 1
  assert (limiter.samples_per_insert, limiter.min_size_to_sample) == (1.0, 1)
  assert limiter.max_diff == -limiter.min_diff == RateLimiter().max_diff


def test_priorities_are_set_of_the_items_that_are_there(address):
  reverb(address, 'rows')
  keys = {s.priority: s.key for s in sample(address, 200)}
  client = ReplayClient(address)
  client.mutate_priorities('prioritized', {keys[0.5]: 9.25, 17: 1.0})
  found = {s.key: s.priority for s in sample(address, 200)}
  assert found == {key: priority for priority, key in keys.items()} | {keys[0.5]: 9.25}
