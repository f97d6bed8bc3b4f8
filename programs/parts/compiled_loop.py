"""Anakin's loop as a node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import launchpad as lp

from programs.options.compiled_loop import CompiledLoopConfig
from programs.parts.deferred import Deferred


def add_compiled_loop(
  program: lp.Program,
  config: CompiledLoopConfig,
  make_agent: Callable[..., Any],
  make_environment: Callable[[], Any],
  monitor: Any,
  ask_again_seconds: float,
) -> Any:
  """Adds the node that acts and learns.

  Args:
    program: to add it to.
    config: of the program.
    make_agent: takes the specs of observations and actions.
    make_environment: makes one environment in JAX.
    monitor: a handle on it.
    ask_again_seconds: after which an evaluator asks again; see nodes.runtime.rpc.

  Returns:
    A handle on it.
  """
  anakin = program.add_node(
    lp.CourierNode(
      Deferred('nodes.anakin', 'Anakin'),
      make_agent,
      make_environment,
      monitor,
      num_envs=config.num_envs,
      num_devices=config.num_devices,
      updates_per_call=config.updates_per_call,
      num_steps=config.num_steps,
      run_dir=config.run_dir,
      checkpoint_period=config.checkpoint_period,
      checkpoints_kept=config.checkpoints_kept,
      seed=config.root_seed.child('anakin'),
    ),
    label='anakin',
  )
  anakin.set_client_kwargs(call_timeout=ask_again_seconds)
  return anakin
