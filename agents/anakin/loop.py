"""Anakin (Hessel et al. 2021, "Podracer architectures"): acting and learning in one compiled function.

One compiled call does `updates_per_call` updates in a scan. In each, a scan over time acts in and steps
all environments, and the agent's update learns from the resulting unrolls. The environments are sharded
over the devices and the learner state is replicated. Nothing leaves the devices within a call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from agents.agent import Agent, LearnerState
from agents.anakin import streams as playing
from agents.anakin.environment import JaxEnvironment
from agents.anakin.limits import check_rows
from agents.anakin.streams import Episodes, Streams
from agents.metrics import all_finite
from agents.types import Array, Nest, Unroll


class AnakinState(NamedTuple):
  """The complete state of a run: equal states continue identically."""

  learner: LearnerState  # Replicated.
  streams: Streams  # Sharded.


class Report(NamedTuple):
  """The results of one call. Metrics are `[updates]`; all other leaves are scalars."""

  metrics: dict[str, Array]  # Of each update, by name.
  finite: Array  # bool; see `agents.metrics.all_finite`.
  episodes: Episodes  # Sums over the environments.


class AnakinLoop:
  """The loop of one agent in one kind of environment.

  Each environment has its own random numbers, and the update is a mean over all unrolls, which becomes
  one all-reduce. Results therefore do not depend on the number of devices, except for rounding.

  Attributes:
    num_envs: environments, over all devices.
    steps_per_call: rows played in one call, over all environments.
  """

  def __init__(
    self,
    agent: Agent,
    environment: JaxEnvironment,
    num_envs: int,
    devices: Sequence[jax.Device],
    updates_per_call: int = 1,
  ):
    """Initialises a loop; nothing is compiled yet.

    Args:
      agent: an on-policy agent; successive unrolls share one row.
      environment: one environment.
      num_envs: number of copies to play, divisible by the number of devices.
      devices: local devices of this process.
      updates_per_call: learner steps in one call of `train`.

    Raises:
      ValueError: the environments do not divide over the devices, the rows of a call overflow its
        counters, or the agent's successive unrolls do not share exactly one row.
    """
    if num_envs % len(devices):
      raise ValueError(
        f'--num_envs={num_envs} does not divide over {len(devices)} devices; make it a multiple.'
      )
    if agent.unroll_period != agent.unroll_rows - 1:
      raise ValueError('Anakin needs unrolls that share exactly one row with the next.')
    check_rows(num_envs, agent.unroll_period, updates_per_call)
    self.num_envs = num_envs
    self.steps_per_call = updates_per_call * num_envs * agent.unroll_period
    self._agent = agent
    self._environment = environment
    self._updates_per_call = updates_per_call
    self._mesh = Mesh(np.asarray(devices), ('data',))
    replicated = NamedSharding(self._mesh, PartitionSpec())
    sharded = NamedSharding(self._mesh, PartitionSpec('data'))
    self._shardings = (replicated, sharded)  # Of an `AnakinState`.
    self._init = jax.jit(self._make_state, out_shardings=self._shardings)
    self._train: Any = jax.jit(
      self._updates,
      in_shardings=self._shardings,
      out_shardings=(*self._shardings, replicated),
      # The learner state is not donated, so callers may keep using its parameters.
      donate_argnums=1,
    )

  def init(self, key: Array) -> AnakinState:
    """Returns the initial state of a run from a typed PRNG key."""
    return AnakinState(*self._init(key))

  def put(self, state: AnakinState) -> AnakinState:
    """Moves a state of NumPy arrays, such as a restored one, to the devices."""
    return AnakinState(*map(jax.device_put, state, self._shardings))

  def train(self, state: AnakinState) -> tuple[AnakinState, Report]:
    """Does `updates_per_call` learner steps, each on a new unroll of every environment.

    Args:
      state: the buffers of its `streams` are donated; its `learner` stays valid.
    """
    learner, streams, report = self._train(*state)
    return AnakinState(learner, streams), report

  def compile(self, state: AnakinState) -> str:
    """Compiles `train` ahead of its first call; returns the compiled program as text."""
    if not isinstance(self._train, jax.stages.Compiled):
      self._train = self._train.lower(*state).compile()
    return str(self._train.as_text())

  def _make_state(self, key: Array) -> tuple[LearnerState, Streams]:
    init_key, streams_key = jax.random.split(key)
    learner = self._agent.init(init_key)
    streams = playing.begin(
      self._agent,
      self._environment,
      learner.params,
      learner.learner_steps,
      jnp.asarray(self._agent.exploration(self.num_envs), jnp.float32),
      streams_key,
    )
    return learner, streams

  def _updates(
    self, learner: LearnerState, streams: Streams
  ) -> tuple[LearnerState, Streams, Report]:
    def update(
      carry: tuple[LearnerState, Streams, Episodes], _: None
    ) -> tuple[tuple[LearnerState, Streams, Episodes], dict[str, Array]]:
      learner, streams, episodes = carry
      streams, unrolls, more = self._unroll(learner.params, learner.learner_steps, streams)
      output = self._agent.update(learner, unrolls, None)
      episodes = jax.tree.map(jnp.add, episodes, more)
      return (output.state, streams, episodes), output.metrics

    none = streams.episode_length * 0
    episodes = Episodes(none, none, none.astype(jnp.float32), none)
    (learner, streams, episodes), metrics = jax.lax.scan(
      update, (learner, streams, episodes), length=self._updates_per_call
    )
    # Episodes may span many calls, so the sum of their lengths may overflow int32.
    episodes = episodes._replace(length_sum=episodes.length_sum.astype(jnp.float32))
    sums = jax.tree.map(lambda x: jnp.sum(x, dtype=x.dtype), episodes)
    return learner, streams, Report(metrics, all_finite(learner.params, metrics), sums)

  def _unroll(
    self, params: Nest, learner_steps: Array, streams: Streams
  ) -> tuple[Streams, Unroll, Episodes]:
    """Plays each device's environments on that device; shard_map bypasses the partitioner."""
    data, everywhere = PartitionSpec('data'), PartitionSpec()
    return jax.shard_map(
      lambda *args: playing.unroll(self._agent, self._environment, *args),
      mesh=self._mesh,
      in_specs=(everywhere, everywhere, data),
      out_specs=(data, data, data),
      check_vma=False,
    )(params, learner_steps, streams)
