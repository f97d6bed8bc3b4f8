"""The evolver: has the parameters, has their perturbations evaluated, and follows what earns more."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from acme.utils import counting

from agents.evolution import strategy
from agents.evolution.agent import EvolutionState
from agents.metrics import all_finite
from agents.seeding import Seed
from agents.types import Nest
from nodes.evolution.dispatch import Dispatcher
from nodes.evolution.episodes import Episodes
from nodes.evolution.options import WorkerOptions
from nodes.learning import serialisation, warm_start
from nodes.learning.checkpointer import Checkpointer
from nodes.learning.finite import raise_not_finite
from nodes.learning.training import Training, newest_checkpoint
from nodes.runtime import activity, lifecycle
from nodes.runtime.counters import ActingCounters, ActingTotals
from nodes.runtime.gate import ReadyGate
from nodes.runtime.options import RunOptions
from nodes.runtime.rate import Rate
from nodes.runtime.time_share import TimeShare
from rundir import saved_params


class Evolver:
  """Trains until `num_steps`, then serves the parameters until the program stops."""

  def __init__(
    self,
    make_episodes: Callable[[], Episodes],
    workers: Sequence[Any],
    monitor: Any,
    options: WorkerOptions,
    run: RunOptions,
    num_pairs: int,
    seed: Seed,
    name: str = 'evolver/0',
  ):
    """Initialises the node; the work starts in `run`.

    Args:
      make_episodes: makes what the workers play with; only its agent is used.
      workers: Courier clients of `nodes.evolution_worker.EvolutionWorker`s.
      monitor: Courier client of the monitor.
      options: of the workers.
      run: when training ends, and what it saves; it ends with the generation that reaches `num_steps`.
      num_pairs: in a generation.
      seed: of the initial parameters, the noise and the episodes.
      name: of the node.
    """
    self._arguments = make_episodes, workers, monitor, options, run, num_pairs, seed, name
    self._training: Generations | None = None
    self._gate = ReadyGate()

  def get_params(self) -> tuple[dict[str, int], Any] | None:
    """Returns the counters of the newest parameters, and the parameters as `serialisation.to_data`.

    An RPC, of the evaluator in JAX environments. It waits for the first parameters; returns None if the
    node stops before them.
    """
    self._gate.wait()
    self._gate.check()
    if self._training is None:
      return None
    counts, params = self._training.published
    return counts, serialisation.to_data(params)

  def get_variables(self, names: Sequence[str]) -> list[Any] | None:
    """Returns the same by name; see `nodes.learning.parameter_service.ParameterService`. An RPC."""
    found = self.get_params()
    if found is None:
      return None
    counts, params = found
    known = {'counts': counts, 'params': params, 'policy_version': counts['learner_steps']}
    return [known[name] for name in names]

  def run(self) -> None:
    """Trains until `num_steps`, then serves the evaluator until the program stops."""
    activity.mark(activity.STARTING)
    stop = lifecycle.stop_event()
    with self._gate.release_on_exit(stop):
      self._training = Generations(*self._arguments, stop)
      self._gate.open()
      self._training.run()


class Generations(Training):
  """Does one generation after the other. A resumed run is identical to an uninterrupted one.

  Attributes:
    published: the counters of the newest parameters, and these.
  """

  def __init__(
    self,
    make_episodes: Callable[[], Episodes],
    workers: Sequence[Any],
    monitor: Any,
    options: WorkerOptions,
    run: RunOptions,
    num_pairs: int,
    seed: Seed,
    name: str,
    stop: threading.Event,
  ):
    """Restores or initialises the state; arguments as of `Evolver`, and `stop` as of `Training`."""
    super().__init__(name, run, run.learner_dir(), monitor, stop)
    episodes = make_episodes()
    self._agent, self._options, self._num_pairs = episodes.agent, options, num_pairs
    self._key = seed.child('generations').key()
    self._dispatcher = Dispatcher(workers)
    self._flat, self._evolve = jax.jit(self._agent.flat), jax.jit(self._agent.evolve)
    self._seeds = jax.jit(strategy.seeds, static_argnums=2)
    self._counter = counting.Counter()
    self._counter.increment(actor_steps=0, environment_frames=0, learner_steps=0)
    self._acting = ActingCounters(self._counter, episodes.action_repeat)
    self._metrics: dict[str, float] = {}
    self._waiting = TimeShare()
    self._rate = Rate()
    self._state = self._begin(seed)
    self._rate.start(self._counts()['learner_steps'])
    self._reporter.count(self._counts())
    self._publish()

  def _begin(self, seed: Seed) -> EvolutionState:
    """Returns the state to begin with: of the checkpoint, if there is one; and sets its counters."""
    state: EvolutionState = jax.device_get(self._agent.init(seed.child('parameters').key()))
    checkpoint = newest_checkpoint(self._learner_dir)
    if checkpoint is not None:
      self._counter.increment(**checkpoint.counts)
      restored: EvolutionState = serialisation.restore(checkpoint, state)
      return restored
    if saved_params.has_initial(self._run_options.run_dir):
      state = warm_start.with_initial_params(self._agent, state, self._run_options.run_dir)
    return state

  def _counts(self) -> dict[str, int]:
    return {name: int(count) for name, count in self._counter.get_counts().items()}

  def _is_trained(self) -> bool:
    return self._acting.actor_steps >= self._run_options.num_steps

  def _step(self) -> None:
    """Does a generation."""
    generation = self._counts()['learner_steps']
    seeds = np.asarray(self._seeds(self._key, generation, self._num_pairs))
    vector = np.asarray(self._flat(self._state.params))
    with activity.doing(activity.WAITING_FOR_WORKERS), self._waiting.counted():
      parts = np.split(seeds, self._options.virtual_workers)
      played = self._dispatcher.play(generation, vector, parts, self._report_or_stop)
    activity.mark(activity.UPDATING)
    *episodes, seen = zip(*played, strict=True)
    returns, lengths = map(np.concatenate, episodes)
    state, metrics = jax.device_get(self._evolve(self._state, seeds, returns, np.stack(seen)))
    if not all_finite(state.params, metrics):
      raise_not_finite(generation + 1, metrics)
    self._state = state
    self._metrics = {name: float(value) for name, value in metrics.items()}
    sums = lengths.sum(), returns.size, returns.sum(), lengths.sum()
    self._acting.add(ActingTotals(*map(float, sums)))
    self._counter.increment(learner_steps=1)
    self._publish()

  def _after_step(self, checkpointer: Checkpointer) -> bool:
    if self._report_or_stop():
      raise lifecycle.Stopped
    return checkpointer.due()

  def _report_or_stop(self) -> bool:
    """Returns whether to stop; reports if that is due, since a generation may take long."""
    # The first report names the columns of the log, and only an update has all measurements.
    if self._metrics:
      self._reporter.maybe_report()
    else:
      self._reporter.maybe_count(self._counts())
    return self._should_stop()

  def _publish(self) -> None:
    self.published = self._counts(), self._state.params

  def _save(self) -> tuple[dict[str, int], EvolutionState]:
    return self._counts(), self._state

  def _final_params(self) -> Nest:
    return self._state.params

  def _finish(self, params: Nest) -> dict[str, float]:
    del params
    activity.mark(activity.IDLE)  # For as long as the monitor is away.
    self._reporter.report_now(self._stop.is_set)
    return {}

  def _measure(self, seconds: float) -> dict[str, float]:
    generations = self._counts()['learner_steps']
    return (
      self._metrics
      | self._acting.measure(seconds)
      | {
        'learner_steps': float(generations),
        'learner_steps_per_second': self._rate.measure(generations, seconds),
        'learner_waiting_share': self._waiting.measure(seconds),
        'repeated_parts': float(self._dispatcher.repeated),
        'dropped_parts': float(self._dispatcher.dropped),
      }
    )
