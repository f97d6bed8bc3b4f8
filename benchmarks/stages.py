"""Measures the cost of each stage of the data path alone, with the classes that the nodes use.

python -m benchmarks.stages --program=sebulba --env=catch     prints the costs as JSON

`benchmarks.pipeline` runs this module in a separate process. A step is one row of one environment.
"""

from __future__ import annotations

import functools
import itertools
import json
import math
import os
import sys
import tempfile
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import numpy as np
from absl import flags
from acme import specs
from acme.utils import counting

from agents.options import value as value_of
from agents.seeding import Seed
from agents.types import Timestep, Unroll
from benchmarks import costs, options, roles, servers
from environments import contract_check
from environments import registry as environments
from nodes.inference import batching
from nodes.inference.client import RemotePolicy, ServerAddress
from nodes.inference.device import DeviceInference, InferenceOutput
from nodes.inference.env_groups import EpisodeStatistics
from nodes.learning.prefetcher import DevicePrefetcher
from nodes.learning.update import Learner
from nodes.unrolls.assembler import UnrollAssembler, unroll_spec
from nodes.unrolls.packing import Columns
from nodes.unrolls.table_names import UNROLLS, BatchPart
from programs import registry as programs

_PAUSE_MS = flags.DEFINE_float(
  'pause_ms', 0.0, 'milliseconds of sleep before each call of a stage', lower_bound=0.0
)
_TABLE_SIZE = 1 << 20
_MAX_BYTES = 256 << 20
_COMPILED = '/jax/core/compile/backend_compile_duration'


class _Input(NamedTuple):
  """An `InferenceInput`."""

  timestep: Timestep
  rows: int
  first_slot: int
  needs_reset: bool = False


class Compilations:
  """Counts the compilations of XLA in this process from now on."""

  def __init__(self) -> None:
    self.count = 0
    jax.monitoring.register_event_duration_secs_listener(self._listen)

  def _listen(self, event: str, duration_secs: float, **kwargs: Any) -> None:
    del duration_secs, kwargs
    self.count += event == _COMPILED


class Stages:
  """The stages of a program with actors, inference, replay and learner, at its own sizes.

  Each method returns the cost of one step, as `costs.Cost`. Methods after `start_inference` use its
  recorded unrolls.
  """

  def __init__(
    self,
    program: str,
    config: Any,
    seconds: float,
    repeats: int,
    directory: str,
    pause: float = 0.0,
  ):
    """Makes the agent and the environment.

    Args:
      program: name of the program.
      config: resolved options.
      seconds: length of each timing.
      repeats: timings of each stage.
      directory: an existing directory for the servers' files.
      pause: seconds of sleep before each call; see `costs.measure`.
    """
    self._config = config
    self._repeats = repeats
    self._measure = functools.partial(costs.measure, seconds=seconds, repeats=repeats, pause=pause)
    self._directory = directory
    self._num_envs = config.acting.envs_per_actor // config.acting.env_groups
    self._spec = environments.make_spec(config.run.env, config.run.env_options)
    make_agent = programs.load(program).make_agent(config)
    self._agent = make_agent(self._spec.observations, self._spec.actions)
    self._infers, self._learns = roles.infers(config), roles.learns(config)
    self._prioritized = bool(value_of(config, 'samples_per_insert', 0.0))
    sampled = config.replay.samples_per_insert if self._prioritized else 1.0
    # Overlapping unrolls count only the rows that they do not share.
    self._steps_per_batch = config.replay.batch_size * self._agent.unroll_period / sampled

  def environment(self) -> costs.Cost:
    """Steps one group of environments with random actions."""
    environment = self._make_environment()
    actions = itertools.cycle(_random_actions(self._spec.actions, self._num_envs))
    environment.reset()

    def work() -> float:
      environment.step(next(actions))
      return self._num_envs

    cost = self._measure(work, here=roles.acts(self._config))
    environment.close()
    return cost

  def rpc(self) -> costs.Cost:
    """Sends the timesteps of an actor's groups and receives constant actions."""
    groups = self._config.acting.env_groups
    action = _random_actions(self._spec.actions, self._num_envs)[0]
    environment = self._make_environment()
    timestep = environment.reset()
    environment.close()
    serve = functools.partial(servers.serve_actions, action, self._config.inference.shared_memory)
    with servers.running(self._directory, 'inference', serve) as (pid, address):
      server = ServerAddress(address)
      policies = [RemotePolicy(server, 'actor/0', 1, g, lambda: False) for g in range(groups)]
      for policy in policies:
        policy.send(timestep)

      def work() -> float:
        for policy in policies:
          policy.receive()
          policy.send(timestep)
        return groups * self._num_envs

      cost = self._measure(work, here='actor', others={self._infers: pid})
      for policy in policies:
        policy.receive()
    return cost

  def start_inference(self) -> None:
    """Compiles inference for all environments of the program, and records two unrolls."""
    config, n = self._config, self._num_envs
    num_groups = config.actors_per_server * config.acting.env_groups
    self._num_groups = min(num_groups, config.inference.inference_batch_size // n)
    slots = num_groups * n
    self._inference = DeviceInference(
      self._agent,
      jax.local_devices()[config.inference.actor_devices[0]],
      self._agent.exploration(slots),
      np.arange(slots),
      self._spec,
      batching.bucket_sizes(n, max(n, config.inference.inference_batch_size)),
      Seed(config.run.seed),
    )
    # The learner publishes its parameters to inference from the start.
    self._counter = counting.Counter()
    self._learner = Learner(
      self._agent,
      [jax.local_devices()[i] for i in config.learning.learner_devices],
      self._inference.set_params,
      lambda: None,
      self._counter,
      Seed(config.run.seed),
    )
    self._inference.compile()
    self._record()

  def _record(self) -> None:
    environment = self._make_environment()
    assembler = UnrollAssembler(self._num_envs, self._agent.unroll_rows, self._agent.unroll_period)
    timestep = Timestep(*environment.reset())
    self._rows: list[tuple[Timestep, Any]] = []
    self._unrolls: list[Unroll] = []
    for _ in range(self._agent.unroll_rows + self._agent.unroll_period):
      version, action, extras, core_state = self._ask([timestep])[0]
      self._rows.append((timestep, (version, action, extras, core_state)))
      unroll = assembler.append(timestep, action, extras, version, core_state)
      if unroll is not None:
        self._unrolls.append(jax.tree.map(np.copy, unroll))
        assembler.release(unroll)
      timestep = Timestep(*environment.step(action))
    environment.close()

  def _ask(self, timesteps: list[Timestep]) -> list[InferenceOutput]:
    return self._inference.serve(
      [_Input(timestep, self._num_envs, i * self._num_envs) for i, timestep in enumerate(timesteps)]
    )

  def inference(self) -> costs.Cost:
    """Serves batches as large as the program's, one after the other."""
    timesteps = itertools.cycle([timestep for timestep, _ in self._rows])

    def work() -> float:
      self._ask([next(timesteps) for _ in range(self._num_groups)])
      return self._num_groups * self._num_envs

    return self._measure(work, here=self._infers)

  def assembling(self) -> costs.Cost:
    """Assembles the recorded rows into unrolls and updates the episode statistics."""
    assembler = UnrollAssembler(self._num_envs, self._agent.unroll_rows, self._agent.unroll_period)
    episodes = EpisodeStatistics(self._num_envs)

    def work() -> float:
      for timestep, (version, action, extras, core_state) in self._rows:
        episodes.observe(timestep)
        unroll = assembler.append(timestep, action, extras, version, core_state)
        if unroll is not None:
          assembler.release(unroll)
      return len(self._rows) * self._num_envs

    return self._measure(work, here=self._infers)

  def replay(self) -> Iterator[tuple[str, costs.Cost]]:
    """Yields, by stage, the costs of inserting, of sampling to the learner devices, of an update.

    The table has the program's selectors and room for all inserted unrolls. Its rate limiter
    lets each side work alone. The program's ratio of samples to inserts determines a step's share of a
    batch.
    """
    from nodes.unrolls.mixed_reader import make_reader
    from nodes.unrolls.tables import prioritized_table, queue_table
    from nodes.unrolls.writer import UnrollWriter

    config = self._config
    tables = queue_table(_TABLE_SIZE)
    if self._prioritized:
      tables = prioritized_table(_TABLE_SIZE, 1, 1.0, 1e9, config.replay.priority_exponent)
    serve = functools.partial(servers.serve_replay, tables, os.path.join(self._directory, 'replay'))
    unroll = unroll_spec(self._agent, self._spec)
    columns = Columns(unroll, config.unrolls_per_item)
    with servers.running(self._directory, 'replay', serve) as (pid, address):
      priorities = jax.jit(self._agent.initial_priorities)
      writer = UnrollWriter([address], columns, priorities)
      writer.start()
      yield 'insert', self._insert(writer, columns.item_bytes // columns.unrolls_per_item, pid)
      reader = make_reader(
        self._agent,
        self._spec,
        [address],
        [BatchPart(UNROLLS, config.replay.batch_size)],
        config.unrolls_per_item,
        max_in_flight=config.replay.max_in_flight,
      )
      yield 'sample', self._sample(reader, writer.written // config.replay.batch_size, pid)
      self._learner.compile(unroll, config.replay.batch_size)
      yield 'update', self._update(reader, pid)
      writer.close()

  def _insert(self, writer: Any, unroll_bytes: int, pid: int) -> costs.Cost:
    """Writes the recorded unrolls: enough for the sampling stage, and at most `_MAX_BYTES`."""
    unrolls = itertools.cycle(self._unrolls)
    repeats = self._repeats
    least = math.ceil(self._config.replay.batch_size * (1 + 1 / repeats) / self._num_envs)

    def work() -> float:
      accepted = threading.Event()
      writer.put(next(unrolls), accepted.set)
      while not accepted.wait(1.0):
        writer.check()
      return self._num_envs * self._agent.unroll_period

    most = max(least, _MAX_BYTES // (repeats * self._num_envs * unroll_bytes))
    return self._measure(work, here=self._infers, others={'replay': pid}, calls=(least, most))

  def _sample(self, reader: Any, batches: int, pid: int) -> costs.Cost:
    """Moves batches to the learner devices; from a queue, at most as many as it holds."""

    def put(batch: Any) -> Any:
      unrolls, probabilities = self._learner.sync.to_global((batch.unrolls, batch.probabilities))
      return batch._replace(unrolls=unrolls, probabilities=probabilities)

    prefetcher = DevicePrefetcher(reader, put)

    def work() -> float:
      self._batch = jax.block_until_ready(prefetcher.next(lambda: None))
      return self._steps_per_batch

    most = sys.maxsize if self._prioritized else (batches - 1) // self._repeats
    return self._measure(work, here=self._learns, others={'replay': pid}, calls=(1, most))

  def _update(self, reader: Any, pid: int) -> costs.Cost:
    """Updates from one batch on the learner devices, and sends the resulting priorities."""
    self._learner.learn_from(itertools.repeat(self._batch), reader.update_priorities)

    def work() -> float:
      self._learner.step()
      self._learner.actor_steps()  # Blocks until the update is done.
      return self._steps_per_batch

    return self._measure(work, here=self._learns, others={'replay': pid})

  def _make_environment(self) -> Any:
    config = self._config
    return environments.make(
      config.run.env, self._num_envs, config.run.seed, config.run.env_options
    )


def measure(
  program: str, config: Any, seconds: float, repeats: int, pause: float = 0.0
) -> dict[str, Any]:
  """Measures all stages.

  Args:
    program: name of the program.
    config: resolved options.
    seconds: length of each timing.
    repeats: timings of each stage.
    pause: seconds of sleep before each call; see `costs.measure`.

  Returns:
    `stages`, the cost of a step by stage, and `compiled_while_timing`, the number of XLA compilations
    after warm-up.
  """
  with tempfile.TemporaryDirectory() as directory:
    stages = Stages(program, config, seconds, repeats, directory, pause)
    measured = {'environment': stages.environment()}
    if not config.acting.actors_as_threads:  # They send no messages.
      measured['rpc'] = stages.rpc()
    stages.start_inference()
    compiled = Compilations()
    measured['inference'] = stages.inference()
    measured['assembling'] = stages.assembling()
    serving = compiled.count
    measured.update(stages.replay())
  return {
    'stages': {name: cost._asdict() for name, cost in measured.items()},
    'compiled_while_timing': serving,
  }


def _random_actions(spec: specs.Array, num_envs: int) -> list[np.ndarray]:
  """Returns some batches of actions."""
  rng = np.random.default_rng(0)
  return [contract_check.random_actions(rng, spec, None, num_envs) for _ in range(64)]


def main(argv: list[str]) -> None:
  """Measures all stages; prints the costs as JSON."""
  del argv
  config = options.config()
  seconds, repeats = options.STAGE_SECONDS.value, options.REPEATS.value
  pause = _PAUSE_MS.value / 1e3
  print(json.dumps(measure(options.program(), config, seconds, repeats, pause)), flush=True)
  os._exit(0)  # Threads of Reverb may still wait for the server.


if __name__ == '__main__':
  options.run(main)
