"""Anakin's node: runs the compiled loop on the devices of its host, or of the hosts of all replicas."""

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
from nodes.learning import replicas, serialisation
from nodes.learning.compiled_training import CompiledTraining
from nodes.learning.memory import check_memory
from nodes.learning.options import LoopOptions
from nodes.population.member import Member
from nodes.population.options import Place
from nodes.runtime import activity, lifecycle
from nodes.runtime.gate import ReadyGate
from nodes.runtime.options import RunOptions


class Anakin:
  """Trains until `num_steps`, then serves the parameters until the program stops.

  See `CompiledTraining`. With `peer`, each call of the loop is a local update, after which the
  node mixes its parameters with those of its neighbours. With `member` it is one of a population.

  With several replicas, each node runs the same loop over the devices of all, and drives its own.
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
    member: Place | None = None,
    replica: int = 0,
    coordinator: str | None = None,
  ):
    """Initialises the node; the work starts in `run`.

    Args:
      make_agent: builds the agent from the specs of observations and actions.
      make_environment: builds one environment.
      monitor: client of the monitor; None in a replica except for the first, which reports for all.
      options: of the loop.
      run: when training ends, and what it saves; it ends with the first call that reaches `num_steps`.
      seed: of all random numbers, except the initial parameters if there is a `params_seed`.
      rings: the replay on the devices; None where a learner step uses the new unrolls only.
      name: of the node.
      peer: its place among peers; None for a node that trains alone.
      params_seed: of the initial parameters, the same in all peers; None for `seed`.
      member: its place in a population; None for a node that trains alone.
      replica: index of this replica; the first writes checkpoints and parameters.
      coordinator: host:port of the JAX coordinator, where the first replica runs; None for one replica.
    """
    self._make_agent = make_agent
    self._make_environment = make_environment
    self._options, self._run_options = options, run
    self._seed, self._rings, self._name = seed, rings, name
    self._params_seed = params_seed
    self._replica, self._coordinator = replica, coordinator
    # A population's leaderboard has the place of learner 0.
    number = member.number + 1 if member else peer.number if peer else 0
    self._learner_dir = run.learner_dir(number)
    self._mixer = Mixer(peer) if peer else None
    self._member = Member(member) if member else None
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
    devices = self._join()  # Before anything uses a device.
    environment = self._make_environment()
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
      member=self._member,
      replica=self._replica,
    )
    self._gate.open()
    self._training.run()

  def _join(self) -> list[jax.Device]:
    """Joins the other replicas, if any; returns the devices of all, those of the first one first."""
    if self._coordinator is None:
      return self._devices_of(jax.process_index())
    with activity.doing(activity.WAITING_FOR_REPLICAS):
      replicas.initialize(self._coordinator, self._replica, self._options.num_replicas)
      devices = [d for process in range(jax.process_count()) for d in self._devices_of(process)]
      replicas.warm_up_collectives(devices)
    return devices

  def _devices_of(self, process: int) -> list[jax.Device]:
    found = jax.local_devices(process_index=process)
    if self._options.num_devices > len(found):
      raise lifecycle.NonRetryableError(
        f'--num_devices={self._options.num_devices}, but this process sees {len(found)} device(s).'
      )
    return found[: self._options.num_devices or None]
