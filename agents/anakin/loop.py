"""Anakin (Hessel et al. 2021, "Podracer architectures"): acting and learning in one compiled function.

One compiled call does a scan over iterations. In each, a scan over time acts in and steps all
environments, and the agent's update learns from the resulting unrolls, or from samples of a replay that
they go to. Environments and replay are sharded over the devices and the learner state is replicated.
Within a call, hosts exchange nothing but the sums of the update, and a single host nothing at all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from agents.agent import Agent, LearnerState
from agents.anakin import streams as playing
from agents.anakin.environment import JaxEnvironment
from agents.anakin.host_copies import HostCopies, key_data
from agents.anakin.learning import Learning, OnPolicyLearning, ReplayLearning
from agents.anakin.limits import RingSizes, check_rows
from agents.anakin.streams import Episodes, Streams
from agents.metrics import all_finite
from agents.types import Array, Nest, Unroll


class AnakinState(NamedTuple):
  """The complete state of a run: equal states continue identically."""

  learner: LearnerState  # Replicated.
  streams: Streams  # Sharded.
  replay: Nest  # `agents.anakin.ring.Ring`, sharded; () for an on-policy agent.


class Report(NamedTuple):
  """The results of one call. Metrics are `[updates]`; all other leaves are scalars."""

  metrics: dict[str, Array]  # One entry per update; 0 for updates before replay was filled.
  learner_steps: Array  # int32, done so far.
  finite: Array  # bool; see `agents.metrics.all_finite`.
  episodes: Episodes  # Sums over the environments.


class AnakinLoop:
  """The loop of one agent in one kind of environment.

  Each environment has its own random numbers, and the update is a mean over all unrolls, which becomes
  one all-reduce. Results therefore do not depend on the number of devices, except for rounding.

  The devices may be of several processes. Then each of them has such a loop, and all make the same calls
  in the same order.

  Attributes:
    num_envs: environments, over all devices.
    steps_per_call: rows played in one call, over all environments.
    mesh: of the devices, with the axis `data`.
  """

  def __init__(
    self,
    agent: Agent,
    environment: JaxEnvironment,
    num_envs: int,
    devices: Sequence[jax.Device],
    updates_per_call: int = 1,
    rings: RingSizes | None = None,
  ):
    """Initialises a loop; nothing is compiled yet.

    Args:
      agent: an on-policy agent, whose successive unrolls share one row, or a replay agent.
      environment: one environment.
      num_envs: number of copies to play, divisible by the number of devices.
      devices: of this process, or of all processes of a JAX job, in the same order everywhere.
      updates_per_call: learner steps in one call of `train`; a multiple of those after each unroll.
      rings: the replay; None for an on-policy agent.

    Raises:
      ValueError: the sizes do not divide over the devices or among each other, the rows of a call
        overflow its counters, or the agent is not of the kind that `rings` says.
    """
    if num_envs % len(devices):
      raise ValueError(
        f'--num_envs={num_envs} does not divide over {len(devices)} devices; make it a multiple.'
      )
    self.mesh = Mesh(np.asarray(devices), ('data',))
    if rings:
      rings.check(num_envs, len(devices), updates_per_call)
    agent = agent.for_loops()
    self._learning: Learning = (
      ReplayLearning(agent, rings, self.mesh) if rings else OnPolicyLearning(agent)
    )
    check_rows(num_envs, agent.unroll_period, updates_per_call, self._learning.updates)
    self._iterations = updates_per_call // self._learning.updates
    self.num_envs = num_envs
    self.steps_per_call = self._iterations * num_envs * agent.unroll_period
    self._agent = agent
    self._environment = environment
    replicated = NamedSharding(self.mesh, PartitionSpec())
    sharded = NamedSharding(self.mesh, PartitionSpec('data'))
    replay = jax.tree.map(lambda spec: NamedSharding(self.mesh, spec), self._learning.specs)
    self._shardings = (replicated, sharded, replay)  # Of an `AnakinState`.
    self._copies = HostCopies(self.mesh)
    self._init = jax.jit(self._make_state, out_shardings=self._shardings)
    self._train: Any = jax.jit(
      self._updates,
      in_shardings=self._shardings,
      out_shardings=(*self._shardings, replicated),
      # The learner state is not donated, so callers may keep using its parameters.
      donate_argnums=(1, 2),
    )

  @property
  def replay_bytes(self) -> int:
    """Size of the replay in bytes, over all devices."""
    replay = self.shapes().replay
    return sum(math.prod(x.shape) * x.dtype.itemsize for x in jax.tree.leaves(replay))

  def init(self, key: Array) -> AnakinState:
    """Returns the initial state of a run from a typed PRNG key."""
    return AnakinState(*self._init(key))

  def shapes(self) -> AnakinState:
    """Returns the shapes and dtypes of what `get` returns, without making a state."""
    return jax.eval_shape(lambda state: jax.tree.map(key_data, state), self._types())

  def get(self, state: AnakinState) -> AnakinState:
    """Returns a state as NumPy arrays, for a checkpoint; typed PRNG keys as their data, uint32.

    Every process has all of it, which takes the devices of all.
    """
    return self._copies.get(state)

  def put(self, state: AnakinState) -> AnakinState:
    """Moves a state of NumPy arrays, as from `get`, to the devices; parts that are there already stay.

    Each process moves the part of its own devices.
    """

    def move(sharding: NamedSharding, types: Nest, part: Nest) -> Nest:
      return self._copies.put(part, sharding, types)

    return AnakinState(*jax.tree.map(move, self._shardings, tuple(self._types()), tuple(state)))

  def train(self, state: AnakinState) -> tuple[AnakinState, Report]:
    """Does `updates_per_call` learner steps, or fewer until the replay is filled.

    Args:
      state: the buffers of its `streams` and `replay` are donated; its `learner` stays valid.
    """
    *later, report = self._train(*state)
    return AnakinState(*later), report

  def compile(self, state: AnakinState) -> str:
    """Compiles `train` ahead of its first call; returns the compiled program as text."""
    if not isinstance(self._train, jax.stages.Compiled):
      self._train = self._train.lower(*state).compile()
    return str(self._train.as_text())

  def _types(self) -> AnakinState:
    """Returns the shapes and dtypes of a state on the devices."""
    return AnakinState(*jax.eval_shape(self._make_state, jax.eval_shape(lambda: jax.random.key(0))))

  def _make_state(self, key: Array) -> tuple[LearnerState, Streams, Nest]:
    init_key, streams_key, replay_key = jax.random.split(key, 3)
    learner = self._agent.init(init_key)
    streams = playing.begin(
      self._agent,
      self._environment,
      learner.params,
      learner.learner_steps,
      jnp.asarray(self._learning.exploration(self.num_envs), jnp.float32),
      streams_key,
    )
    _, unrolls, _ = jax.eval_shape(self._unroll, learner.params, learner.learner_steps, streams)
    missing = playing.num_incomplete(self._agent)
    return learner, streams, self._learning.begin(unrolls, missing, replay_key)

  def _updates(
    self, learner: LearnerState, streams: Streams, replay: Nest
  ) -> tuple[LearnerState, Streams, Nest, Report]:
    def iteration(
      carry: tuple[LearnerState, Streams, Nest, Episodes], _: None
    ) -> tuple[tuple[LearnerState, Streams, Nest, Episodes], dict[str, Array]]:
      learner, streams, replay, episodes = carry
      streams, unrolls, more = self._unroll(learner.params, learner.learner_steps, streams)
      learner, replay, metrics = self._learning.learn(learner, replay, unrolls)
      return (learner, streams, replay, jax.tree.map(jnp.add, episodes, more)), metrics

    none = streams.episode_length * 0
    episodes = Episodes(none, none, none.astype(jnp.float32), none)
    (learner, streams, replay, episodes), metrics = jax.lax.scan(
      iteration, (learner, streams, replay, episodes), length=self._iterations
    )
    metrics = {name: x.reshape(-1) for name, x in metrics.items()}
    # Episodes may span many calls, so the sum of their lengths may overflow int32.
    episodes = episodes._replace(length_sum=episodes.length_sum.astype(jnp.float32))
    sums = jax.tree.map(lambda x: jnp.sum(x, dtype=x.dtype), episodes)
    finite = all_finite(learner.params, metrics)
    return learner, streams, replay, Report(metrics, learner.learner_steps, finite, sums)

  def _unroll(
    self, params: Nest, learner_steps: Array, streams: Streams
  ) -> tuple[Streams, Unroll, Episodes]:
    """Plays each device's environments on that device; shard_map bypasses the partitioner."""
    data, everywhere = PartitionSpec('data'), PartitionSpec()
    return jax.shard_map(
      lambda *args: playing.unroll(self._agent, self._environment, *args),
      mesh=self.mesh,
      in_specs=(everywhere, everywhere, data),
      out_specs=(data, data, data),
      check_vma=False,
    )(params, learner_steps, streams)
