"""Anakin: environment, acting and learning in one compiled function on the accelerator host.

evaluator   --get_params-->   anakin
both        --report-->       monitor
"""

from __future__ import annotations

import dataclasses
import functools

import launchpad as lp

from agents.options import option
from agents.vtrace.config import VTraceConfig
from launchers.placement import Resources
from nodes import jax_environments as environments
from programs.config import CommonConfig
from programs.deferred import Deferred

# An evaluator asks again after this long; see nodes.rpc.
ASK_AGAIN_SECONDS = 120

# Options that suit a family of environments better than the defaults; flags override them.
PRESETS = {
  'gymnax': {'learning_rate': 1e-3, 'num_steps': 2_000_000},
}


@dataclasses.dataclass(frozen=True)
class Config(CommonConfig, VTraceConfig):
  """Everything an Anakin run can be told."""

  num_envs: int = option(
    64, 'environments, over all devices; a learner batch is an unroll of each of them'
  )
  num_devices: int = option(
    0, 'local devices that the environments are spread over; 0: all that the process sees'
  )
  updates_per_call: int = option(
    8,
    'learner steps in one call of the compiled loop, between which nothing is reported or stopped',
  )
  learning_rate: float = option(2e-3, 'Step size at the first update; IMPALA on Atari: 6e-4.')

  def validate(self) -> None:
    """Checks that the options fit together; raises ValueError, one sentence naming the flag."""
    CommonConfig.validate(self)
    VTraceConfig.validate(self)
    self._require_at_least_one('num_envs', 'updates_per_call')
    if self.num_devices < 0:
      raise ValueError(f'--num_devices={self.num_devices} must be 0, for all, or more.')
    if self.num_envs % max(self.num_devices, 1):
      raise ValueError(
        f'--num_envs={self.num_envs} does not divide over --num_devices={self.num_devices}; make it '
        'a multiple.'
      )
    rows = self.num_envs * self.unroll_length * self.updates_per_call
    if rows >= 2**31:
      raise ValueError(
        f'--updates_per_call={self.updates_per_call} makes {rows} rows in one call, more than are '
        'counted; make it smaller.'
      )


def make_program(config: Config) -> lp.Program:
  """Returns the program graph."""
  # Without the run directory, so that whoever looks for those that write to it finds the right ones.
  agent_config = dataclasses.replace(config, run_dir='')
  make_agent = functools.partial(Deferred('agents.vtrace.agent', 'VTrace'), agent_config)
  make_environment = functools.partial(environments.make, config.env, config.env_options)
  program = lp.Program('anakin')
  monitor = program.add_node(
    lp.CourierNode(
      Deferred('nodes.monitor', 'Monitor'), config.run_dir, config.num_steps, config.eval_envs > 0
    ),
    label='monitor',
  )
  monitor.set_client_kwargs(call_timeout=ASK_AGAIN_SECONDS)
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
      seed=config.seed,
    ),
    label='anakin',
  )
  anakin.set_client_kwargs(call_timeout=ASK_AGAIN_SECONDS)
  if config.eval_envs:
    program.add_node(
      lp.PyClassNode(
        Deferred('nodes.anakin_evaluator', 'AnakinEvaluator'),
        make_agent,
        make_environment,
        anakin,
        monitor,
        config.eval_envs,
        config.eval_episodes,
        config.eval_period,
        config.seed,
      ),
      label='evaluator',
    )
  return program


def placement(config: Config) -> dict[str, Resources]:
  """Returns where each group runs: the loop on the accelerator, the rest on CPUs."""
  accelerator = None if config.accelerator == 'cpu' else config.accelerator
  return {
    # The monitor writes the run directory.
    'monitor': Resources(cpus=0, with_launcher=True, restart='on_failure'),
    'anakin': Resources(
      accelerator=accelerator,
      num_devices=config.num_devices if accelerator else 0,
      # What it would forget without checkpoints keeps it from being started again.
      restart='on_failure' if config.checkpoint_period else 'never',
    ),
    'evaluator': Resources(restart='on_failure'),
  }
