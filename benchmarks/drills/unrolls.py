"""Accounts for every unroll of a run with `--audit`."""

from __future__ import annotations

import json
import os
from typing import Any

import numpy as np

from rundir import audit


def account(run_dir: str, kills: int) -> dict[str, Any]:
  """Tracks every unroll of a queue by its id; see `benchmarks/README.md` for the terms.

  Args:
    run_dir: directory of an ended run.
    kills: number of kills of nodes between producer and trainer of unrolls: of replay, and of learners
      that do not infer.
  """
  produced = audit.read(run_dir, audit.PRODUCED)[:, 0]
  records = audit.read(run_dir, audit.TRAINED)
  trained = records[:, 0]
  known = set(trained.tolist())
  config = config_of(run_dir)
  bound, batch_size = on_their_way(config), config['batch_size'] * config.get('num_replicas', 1)
  tails, heads, gaps = [], [], []  # One tail and one head for each incarnation.
  for number, incarnation in enumerate(dict.fromkeys((produced >> 32).tolist())):
    ids = produced[produced >> 32 == incarnation]
    lost = np.array([i not in known for i in ids.tolist()])
    edges = np.flatnonzero(np.diff(np.concatenate(([0], lost.astype(int), [0]))))
    heads.append(0)
    for start, stop in edges.reshape(-1, 2).tolist():
      if stop == len(ids):
        tails.append(stop - start)
      elif start < bound and number > 0:  # Replay sends its next unrolls to a dead learner.
        heads[-1] += stop - start
      else:
        gaps.append(stop - start)
  # A repeated learner step counts only the last time.
  undone = len(records) - batch_size * len(np.unique(records[:, 1]))
  return {
    'produced': len(produced),
    'trained': len(known & set(produced.tolist())),
    'trained_twice': len(trained) - len(known),
    'foreign': len(known - set(produced.tolist())),
    'lost_with_the_learner': sum(tails + heads),
    'lost_with_replay': sum(gaps),
    'unaccounted': sum(max(0, n - bound) for n in tails + heads)
    + max(0, sum(gaps) - kills * bound),
    'undone_by_going_back': undone,
  }


def config_of(run_dir: str) -> dict[str, Any]:
  """Returns the resolved options of a run."""
  with open(os.path.join(run_dir, 'config.json')) as f:
    return json.load(f)['config']


def on_their_way(config: dict[str, Any]) -> int:
  """Returns the maximum number of unrolls in flight from actors to a learner, that of each replica.

  They are in the queue, the batches of the reader and the prefetcher, the current batch of the learner,
  and two buffers for every environment.
  """
  environments = config['num_actors'] * config['envs_per_actor']
  return config.get('queue_size', 0) + 5 * config['batch_size'] + 2 * environments
