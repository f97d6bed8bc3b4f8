"""A node: observes unrolls and reports the frequency of each action."""

import numpy as np

from agents.types import LAST
from nodes.runtime import lifecycle
from nodes.runtime.reporter import Reporter


class ActionHistogram:
  def __init__(self, monitor, num_actions):
    self._counts = np.zeros(num_actions, np.int64)
    self._reporter = Reporter(monitor, 'histogram/0', self._measure)

  def watch(self, columns):  # An RPC, with a copy of each batch of unrolls.
    action, step_type = columns['action'][:, :-1], columns['timestep/step_type'][:, :-1]
    self._counts += np.bincount(action[step_type != LAST], minlength=len(self._counts))

  def _measure(self, seconds):
    counts = self._counts.copy()  # The next batch may arrive meanwhile.
    shares = counts / max(counts.sum(), 1)
    return {f'action_{i}': share for i, share in enumerate(shares)} | {'rows': counts.sum()}

  def run(self):
    stop = lifecycle.stop_event()
    with self._reporter:
      while not stop.wait(0.2):
        self._reporter.maybe_report()
