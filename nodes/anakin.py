"""Anakin's node: runs the compiled loop on the devices of its host."""

from __future__ import annotations

import contextlib
import functools
import math
import threading
from collections.abc import Callable
from typing import Any

import dm_env.specs
import jax
import numpy as np
from absl import logging

from agents import optimizers
from agents.agent import Agent
from agents.anakin.environment import JaxEnvironment
from agents.anakin.limits import RingSizes
from agents.anakin.loop import AnakinLoop, AnakinState, Report
from agents.seeding import Seed
from agents.types import Nest
from nodes.gossip.mixer import Mixer
from nodes.gossip.options import Peer
from nodes.learning import serialisation, warm_start
from nodes.learning.checkpointer import Checkpointer, save_final_params
from nodes.learning.finite import raise_first_not_finite
from nodes.learning.memory import check_memory
from nodes.learning.options import LoopOptions
from nodes.runtime import activity, lifecycle
from nodes.runtime.gate import ReadyGate
from nodes.runtime.options import RunOptions
from nodes.runtime.reporter import Reporter
from rundir import checkpoints, saved_params


class Anakin:
  """Trains until `num_steps`, then serves the parameters until the program stops.

  The node reports, writes checkpoints and stops only between calls of the compiled loop. A run resumed
  from a checkpoint is identical to an uninterrupted one.

  With `peer`, each call of the loop is a local update, after which the node mixes its parameters with
  those of its neighbours. A peer that restarts without a checkpoint continues from the parameters of a
  neighbour.
  """

  def __init__(
    self,
    make_agent: Callable[[dm_env.specs.Array, dm_env.specs.Array], Agent],
    make_environment: Callable[[], JaxEnvironment],
    monitor: Any,
    options: LoopOptions,
    run: RunOptions,
    *,
    seed: Seed,
    rings: RingSizes | None = None,
    name: str = 'anakin/0',
    peer: Peer | None = None,
    params_seed: Seed | None = None,
  ):
    """Initialises the node; the work starts in `run`.

    Args:
      make_agent: builds the agent from the specs of observations and actions.
      make_environment: builds one environment.
      monitor: client of the monitor.
      options: of the loop.
      run: when training ends, and what it saves; it ends with the first call that reaches `num_steps`.
      seed: of all random numbers, except the initial parameters if there is a `params_seed`.
      rings: the replay on the devices; None where a learner step uses the new unrolls only.
      name: of the node.
      peer: its place among peers; None for a node that trains alone.
      params_seed: of the initial parameters, the same in all peers; None for `seed`.
    """
    self._make_agent = make_agent
    self._make_environment = make_environment
    self._options, self._run_options = options, run
    self._seed, self._rings, self._name = seed, rings, name
    self._params_seed = params_seed
    self._learner_dir = run.learner_dir(peer.number if peer else 0)
    self._mixer = Mixer(peer) if peer else None
    if self._mixer:
      self.offer, self.leave = self._mixer.offer, self._mixer.leave  # RPCs of its predecessors.
    self._counts = {'actor_steps': 0, 'environment_frames': 0, 'learner_steps': 0}
    self._monitor = monitor
    self._state: AnakinState | None = None
    self._published: tuple[dict[str, int], Nest] | None = None
    self._gate = ReadyGate()
    self._metrics: dict[str, float] = {}
    self._ended = np.zeros(3)  # Episodes, return sum and length sum since the last report.
    self._measured: dict[str, int] = {}

  def get_params(self) -> tuple[dict[str, int], Any] | None:
    """Returns the counters of the newest parameters, and the parameters as `serialisation.to_data`.

    An RPC. It waits for the first parameters; returns None if the node stops before them.
    """
    self._gate.wait()
    self._gate.check()
    if self._published is None:
      return None
    counts, params = self._published
    return counts, serialisation.to_data(params)

  def run(self) -> None:
    """Trains until `num_steps`, then serves the evaluator until the program stops."""
    stop = lifecycle.stop_event()
    mixing = contextlib.closing(self._mixer) if self._mixer else contextlib.nullcontext()
    with self._gate.release_on_exit(stop), mixing:
      self._run(stop)

  def _run(self, stop: threading.Event) -> None:
    environment, devices = self._make_environment(), self._devices()
    try:
      agent = self._make_agent(environment.observation_spec, environment.action_spec)
      loop = AnakinLoop(
        agent,
        environment,
        self._options.num_envs,
        devices,
        self._options.updates_per_call,
        self._rings,
      )
      check_memory(loop.replay_bytes, devices, self._run_options.checkpoint_period > 0)
    except ValueError as error:
      raise lifecycle.NonRetryableError(str(error)) from error
    if self._rings:
      gib = loop.replay_bytes / 2**30
      logging.info('%.3f GiB of replay over %d device(s)', gib, len(devices))
    directory = checkpoints.directory(self._learner_dir)
    reporter = Reporter(self._monitor, self._name, self._measure, period=0.25)
    state = self._begin(agent, loop, checkpoints.newest(directory))
    reporter.count(self._counts)
    with activity.doing(activity.COMPILING):
      loop.compile(state)
    self._state = state
    self._published = dict(self._counts), state.learner.params
    self._gate.open()
    checkpointer = Checkpointer(
      directory,
      self._run_options.checkpoint_period,
      self._run_options.checkpoints_kept,
      functools.partial(self._save, loop),
    )
    self._measured = dict(self._counts)
    with reporter:
      self._train_to_the_end(loop, reporter, checkpointer, stop)

  def _begin(
    self, agent: Agent, loop: AnakinLoop, checkpoint: checkpoints.Checkpoint | None
  ) -> AnakinState:
    """Returns the state to begin with, and sets its counters.

    It is that of the checkpoint, if there is one; of a peer that has restarted without one, a
    neighbour's; otherwise a new one.
    """
    if checkpoint is not None:
      self._counts = dict(checkpoint.counts)
      logging.info('resuming from %s: %s', checkpoint.path, checkpoint.counts)
      return loop.put(serialisation.restore(checkpoint, loop.shapes()))
    if self._mixer and lifecycle.restart_count():
      found = self._mixer.fetch_params()
      if found is not None:
        return self._adopt_neighbour_state(agent, loop, *found)
    path = checkpoints.directory(self._learner_dir)
    logging.info('%s has no checkpoint yet: training starts with a new state', path)
    state = loop.init(self._seed.key())
    if saved_params.has_initial(self._run_options.run_dir):
      learner = jax.device_get(state.learner)
      learner = warm_start.with_initial_params(agent, learner, self._run_options.run_dir)
      state = loop.put(state._replace(learner=learner))
    elif self._params_seed is not None:
      state = state._replace(learner=loop.init(self._params_seed.key()).learner)
    return state

  def _adopt_neighbour_state(
    self, agent: Agent, loop: AnakinLoop, counts: dict[str, int], params: Any
  ) -> AnakinState:
    """Returns a state with a neighbour's parameters, and takes over its counters.

    The peer's own counters are lost. With the neighbour's it finishes when the others do, and its
    learning rate is theirs: a learner step of GALA is one gradient step. The optimizer's moments are
    new.
    """
    self._counts = dict(counts)
    seed = self._seed.child('restart', lifecycle.restart_count())
    state = loop.init(seed.key())
    learner = jax.device_get(state.learner)
    learner = agent.with_params(learner, serialisation.from_data(params, learner.params))
    steps = counts['learner_steps']
    learner = learner._replace(
      learner_steps=np.int64(steps).astype(np.int32),  # Wraps, as the counter in the loop does.
      opt_state=optimizers.with_count(learner.opt_state, steps),
    )
    return loop.put(state._replace(learner=learner))

  def _train_to_the_end(
    self,
    loop: AnakinLoop,
    reporter: Reporter,
    checkpointer: Checkpointer,
    stop: threading.Event,
  ) -> None:
    assert self._state is not None
    trained = False
    try:
      while self._counts['actor_steps'] < self._run_options.num_steps:
        self._train(loop)
        self._mix(stop)
        reporter.maybe_report()
        checkpointer.maybe_write()
        if stop.is_set():
          raise lifecycle.Stopped
      trained = True
      if self._mixer:
        self._mixer.finish()
      checkpointer.write_now(stop.is_set)
      params = jax.device_get(self._state.learner.params)
      save_final_params(self._learner_dir, params, stop.is_set)
      activity.mark(activity.IDLE)
      reporter.report_now(stop.is_set)
      reporter.report_finished_until_stopped(self._counts, stop)
    except lifecycle.Stopped:
      if not trained:
        checkpointer.write_now()
      logging.info('stopped: %s', self._counts)

  def _train(self, loop: AnakinLoop) -> None:
    """Calls the loop once and updates the counters.

    Raises:
      lifecycle.NonRetryableError: if an update is not finite; the previous state is donated by then.
    """
    assert self._state is not None
    activity.mark(activity.COMPILED_LOOP)
    state, on_device = loop.train(self._state)
    report: Report = jax.device_get(on_device)
    # The counter on the devices is an int32, which wraps.
    updates = (int(report.learner_steps) - self._counts['learner_steps']) % 2**32
    metrics = {name: m[len(m) - updates :] for name, m in report.metrics.items()}
    if updates and not report.finite:
      raise_first_not_finite(self._counts['learner_steps'], updates, metrics)
    self._state = state
    steps = int(report.episodes.actor_steps)
    self._counts['actor_steps'] += steps
    self._counts['environment_frames'] += steps  # JAX environments do not repeat actions.
    self._counts['learner_steps'] += updates
    self._published = dict(self._counts), state.learner.params
    if updates:
      self._metrics = {name: float(m[-1]) for name, m in metrics.items()}
    self._ended += [
      report.episodes.episodes,
      report.episodes.return_sum,
      report.episodes.length_sum,
    ]

  def _mix(self, stop: threading.Event) -> None:
    """Mixes the parameters with those of the neighbours, if there are any."""
    if self._mixer is None:
      return
    assert self._state is not None
    learner = self._state.learner
    params = self._mixer.mix(learner.params, stop.is_set)
    if params is not learner.params:
      self._state = self._state._replace(learner=learner._replace(params=params))
      self._published = dict(self._counts), params

  def _save(self, loop: AnakinLoop) -> tuple[dict[str, int], AnakinState]:
    assert self._state is not None
    return dict(self._counts), loop.get(self._state)

  def _measure(self, seconds: float) -> dict[str, float]:
    rates = {
      f'{name}_per_second': (count - self._measured[name]) / seconds
      for name, count in self._counts.items()
    }
    self._measured = dict(self._counts)
    (episodes, returns, lengths), self._ended = self._ended, np.zeros(3)
    return (
      self._metrics
      | self._counts
      | rates
      | {
        'episodes': float(episodes),
        'episode_return': returns / episodes if episodes else math.nan,
        'episode_length': lengths / episodes if episodes else math.nan,
      }
      | (self._mixer.measure() if self._mixer else {})
    )

  def _devices(self) -> list[jax.Device]:
    local = jax.local_devices()
    if self._options.num_devices > len(local):
      raise lifecycle.NonRetryableError(
        f'--num_devices={self._options.num_devices}, but this process sees {len(local)} device(s).'
      )
    return local[: self._options.num_devices or None]
