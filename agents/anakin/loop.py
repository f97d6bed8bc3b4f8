"""Anakin (Hessel et al. 2021, "Podracer architectures"): the whole of learning as one function.

One compiled call plays and learns `updates_per_call` times: a scan over updates, in each of which a
scan over time steps and acts in all environments, and the agent's update learns from the unrolls. The
environments are spread over the devices and the learner state is replicated on them. Nothing leaves
the devices within a call.
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
  """All that a run carries on: from the same state follows the same run."""

  learner: LearnerState  # Replicated.
  streams: Streams  # Sharded.


class Report(NamedTuple):
  """What happened in one call. Every leaf is a scalar but the metrics, which are `[updates]`."""

  metrics: dict[str, Array]  # Of each update, by name.
  finite: Array  # bool; see `agents.metrics.all_finite`.
  episodes: Episodes  # Sums over the environments.


class AnakinLoop:
  """The loop of one agent in one kind of environment.

  The random numbers of an environment are its own, and the update is a mean over all unrolls, which
  becomes one all-reduce: how many devices there are does not matter, but for rounding.

  Attributes:
    num_envs: environments, over all devices.
    steps_per_call: rows that are played in one call, over all environments.
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
      agent: learns from unrolls as they come; unrolls share their first row with the one before.
      environment: one environment.
      num_envs: how many of it to play, divisible by the number of devices.
      devices: of this process.
      updates_per_call: learner steps in one call of `train`.

    Raises:
      ValueError: the environments do not divide over the devices, the rows of a call are more than
        its counters hold, or the agent's unrolls overlap by more than a row.
    """
    if num_envs % len(devices):
      raise ValueError(
        f'--num_envs={num_envs} does not divide over {len(devices)} devices; make it a multiple.'
      )
    if agent.unroll_period != agent.unroll_rows - 1:
      raise ValueError('Anakin learns from unrolls that share one row with the next, and no more.')
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
      # Not the learner state: who holds its parameters may go on to use them.
      donate_argnums=1,
    )

  def init(self, key: Array) -> AnakinState:
    """Returns the state at the start of the run that a typed PRNG key stands for."""
    return AnakinState(*self._init(key))

  def put(self, state: AnakinState) -> AnakinState:
    """Returns a state of NumPy arrays, such as one that was saved, on the devices."""
    return AnakinState(*map(jax.device_put, state, self._shardings))

  def train(self, state: AnakinState) -> tuple[AnakinState, Report]:
    """Does `updates_per_call` learner steps, each on a new unroll of every environment.

    Args:
      state: its `streams` are used up, its `learner` stays valid.
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
    # Lengths are of whole episodes, which may have begun calls ago: their sum fits no int32.
    episodes = episodes._replace(length_sum=episodes.length_sum.astype(jnp.float32))
    sums = jax.tree.map(lambda x: jnp.sum(x, dtype=x.dtype), episodes)
    return learner, streams, Report(metrics, all_finite(learner.params, metrics), sums)

  def _unroll(
    self, params: Nest, learner_steps: Array, streams: Streams
  ) -> tuple[Streams, Unroll, Episodes]:
    """Plays each device's environments on that device; the partitioner has no say in it."""
    data, everywhere = PartitionSpec('data'), PartitionSpec()
    return jax.shard_map(
      lambda *args: playing.unroll(self._agent, self._environment, *args),
      mesh=self._mesh,
      in_specs=(everywhere, everywhere, data),
      out_specs=(data, data, data),
      check_vma=False,
    )(params, learner_steps, streams)
