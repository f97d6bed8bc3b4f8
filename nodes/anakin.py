"""Anakin's node: runs the compiled loop on the devices of its host."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any

import dm_env.specs
import jax
from absl import logging

from agents.agent import Agent
from agents.anakin.environment import JaxEnvironment
from agents.anakin.limits import RingSizes
from agents.anakin.loop import AnakinLoop
from agents.seeding import Seed
from nodes.gossip.mixer import Mixer
from nodes.gossip.options import Peer
from nodes.learning import serialisation
from nodes.learning.compiled_training import CompiledTraining
from nodes.learning.memory import check_memory
from nodes.learning.options import LoopOptions
from nodes.runtime import lifecycle
from nodes.runtime.gate import ReadyGate
from nodes.runtime.options import RunOptions


class Anakin:
  """Trains until `num_steps`, then serves the parameters until the program stops.

  See `CompiledTraining`. With `peer`, each call of the loop is a local update, after which the
  node mixes its parameters with those of its neighbours.
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
    self._monitor = monitor
    self._training: CompiledTraining | None = None
    self._gate = ReadyGate()

  def get_params(self) -> tuple[dict[str, int], Any] | None:
    """Returns the counters of the newest parameters, and the parameters as `serialisation.to_data`.

    An RPC. It waits for the first parameters; returns None if the node stops before them.
    """
    self._gate.wait()
    self._gate.check()
    if self._training is None:
      return None
    counts, params = self._training.published
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
    self._training = CompiledTraining(
      agent,
      loop,
      self._name,
      self._run_options,
      self._learner_dir,
      self._monitor,
      stop,
      seed=self._seed,
      params_seed=self._params_seed,
      mixer=self._mixer,
    )
    self._gate.open()
    self._training.run()

  def _devices(self) -> list[jax.Device]:
    local = jax.local_devices()
    if self._options.num_devices > len(local):
      raise lifecycle.NonRetryableError(
        f'--num_devices={self._options.num_devices}, but this process sees {len(local)} device(s).'
      )
    return local[: self._options.num_devices or None]
