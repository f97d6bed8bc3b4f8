"""The graph that Sebulba and R2D2 share; they differ in the agent and the replay table.

actor x N   --step-->     inference_learner   --unrolls-->  replay x K
evaluator   --step-->     inference_learner   <--batches--  replay x K
everybody   --report-->   monitor

With --num_replicas=R there are R inference-learners, each with its own N actors and K replay servers.
Their learners are one JAX job, whose coordinator listens beside the RPC server of the first.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

import launchpad as lp

from environments import registry as environments
from launchers.placement import Resources
from nodes.layout import layout
from programs.address import AddressHandle
from programs.config import RunConfig
from programs.deferred import Deferred
from programs.replay_node import ReplayNode

ASK_AGAIN_SECONDS = 30


def make_program(
  name: str,
  config: RunConfig,
  make_agent: Callable[..., Any],
  make_table: Callable[[], Any],
  replay_checkpoint_period: float = 0.0,
) -> lp.Program:
  """Returns the graph.

  Args:
    name: of the program.
    config: resolved and validated.
    make_agent: takes the specs of observations and actions, returns an `agents.agent.Agent`.
    make_table: returns the Reverb tables of one replay server.
    replay_checkpoint_period: seconds between checkpoints of replay; 0 where its unrolls are not worth
      keeping, as in a queue.
  """
  make_environment = functools.partial(environments.make, config.env, options=config.env_options)
  replicas = range(config.num_replicas)
  program = lp.Program(name)

  monitor = program.add_node(
    lp.CourierNode(
      Deferred('nodes.monitor', 'Monitor'),
      config.run_dir,
      config.num_steps,
      config.eval_envs > 0,
      len(replicas),
    ),
    label='monitor',
  )
  shards = config.num_replay_shards
  with program.group('replay'):
    replay = [
      program.add_node(
        ReplayNode(
          make_table,
          monitor,
          f'replay/{i}',
          os.path.join(config.run_dir, 'replay', str(i)),
          replay_checkpoint_period,
        )
      )
      for i in range(len(replicas) * shards)
    ]
  coordinator = AddressHandle('coordinator') if len(replicas) > 1 else None
  inference = []
  with program.group('inference_learner'):
    for replica in replicas:
      streams = layout(
        config.num_actors,
        config.envs_per_actor,
        config.env_groups,
        config.eval_envs,
        replica,
        len(replicas),
      )
      node: lp.CourierNode = lp.CourierNode(
        Deferred('nodes.inference_learner', 'InferenceLearner'),
        make_agent,
        make_environment,
        streams,
        replay[replica * shards : (replica + 1) * shards],
        monitor,
        actor_devices=config.actor_devices,
        learner_devices=config.learner_devices,
        inference_batch_size=config.inference_batch_size,
        inference_timeout_ms=config.inference_timeout_ms,
        batch_size=config.batch_size,
        num_steps=config.num_steps,
        run_dir=config.run_dir,
        checkpoint_period=config.checkpoint_period,
        checkpoints_kept=config.checkpoints_kept,
        record=config.audit,
        seed=config.seed,
        replica=replica,
        num_replicas=len(replicas),
        coordinator=coordinator,
        # A handler blocks until its actor is answered; a request that is sent again takes a second one.
        courier_kwargs={'thread_pool_size': 2 * len(streams) + 4},
      )
      if coordinator is not None and replica == 0:
        coordinator.assign(node)
      inference.append(program.add_node(node))
      # An actor asks again after this long; the server answers a request once. See nodes.rpc.
      inference[-1].set_client_kwargs(call_timeout=ASK_AGAIN_SECONDS)
  monitor.set_client_kwargs(call_timeout=ASK_AGAIN_SECONDS)
  with program.group('actor'):
    for i in range(len(replicas) * config.num_actors):
      program.add_node(
        lp.PyClassNode(
          Deferred('nodes.actor', 'Actor'),
          make_environment,
          inference[i % len(replicas)],
          monitor,
          f'actor/{i}',
          config.envs_per_actor,
          config.env_groups,
          config.seed + 1000 * (i + 1),
        )
      )
  if config.eval_envs:
    program.add_node(
      lp.PyClassNode(
        Deferred('nodes.evaluator', 'Evaluator'),
        make_environment,
        inference[0],
        monitor,
        config.eval_envs,
        config.eval_episodes,
        config.eval_period,
        config.seed,
      ),
      label='evaluator',
    )
  return program


def placement(config: RunConfig) -> dict[str, Resources]:
  """Returns where each group runs: the inference-learner on the accelerator, the rest on CPUs."""
  accelerator = None if config.accelerator == 'cpu' else config.accelerator
  num_devices = 1 + max(config.actor_devices + config.learner_devices) if accelerator else 0
  # What it would forget without checkpoints keeps the inference-learner from being started again.
  restart = 'on_failure' if config.checkpoint_period else 'never'
  return {
    # The monitor writes the run directory.
    'monitor': Resources(cpus=0, with_launcher=True, restart='on_failure'),
    'replay': Resources(restart=restart),
    'inference_learner': Resources(
      accelerator=accelerator,
      num_devices=num_devices,
      restart='never' if config.num_replicas > 1 else restart,
      one_job=config.num_replicas > 1,
    ),
    'actor': Resources(restart='on_failure'),
    'evaluator': Resources(restart='on_failure'),
  }
