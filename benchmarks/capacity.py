"""Plans a deployment: hosts, actors, replay and network that a rate of frames needs.

python -m benchmarks.capacity --env=atari:Pong --target_fps=200000 --accelerators=v5e-8
python -m benchmarks.capacity --env=atari:Pong --target_fps=43000000 --accelerators=v4-2048
python -m benchmarks.capacity --env=atari:Pong --check      the prediction for this machine, and a run

Measures here what a step costs, and multiplies: first for the target, then for the rate at which the
accelerators that there are, or what serves them, are full. That says what would break first: what a
host has, or what all hosts share, which are the all-reduce and the monitor. CPU time is that of the
stages of `benchmarks.pipeline`, with computation that costs nothing (`benchmarks/simulated`), since
accelerators do it. FLOP are those of the program's own agent: its matrix products and convolutions.
Cores of other machines count as cores of this one. Every option of Sebulba is a flag; the batch and the
environments of an actor matter most.

--check predicts this machine, whose cores do the computation too, launches the program and prints the
ratio. The prediction is 0.8 cores / cost of a step, or what one interpreter allows if that is less. A
step costs its stages, and its share of what an inference batch costs beyond them. Here each call of a
stage follows a wait of a millisecond, as in a program: caches are cold after it. Exit code 1: more than
20% apart, 2: other processes took more than a tenth of the cores.
"""

from __future__ import annotations

import math
import sys
from typing import Any

import jax
import numpy as np
from absl import flags
from matplotlib.figure import Figure

from agents import shapes
from benchmarks import demand as demands
from benchmarks import end_to_end, operations, options, output, pipeline, prediction, reports, roles
from benchmarks.demand import Demand, Shares, StepCosts, Update
from benchmarks.simulated.program import PROGRAM
from environments import nests
from environments import registry as environments
from environments.base import describe
from nodes.unrolls.assembler import unroll_spec
from nodes.unrolls.packing import Columns
from programs import registry as programs

_TARGET = flags.DEFINE_float(
  'target_fps', 200_000.0, 'environment frames a second to plan for', lower_bound=1.0
)
_ACCELERATORS = flags.DEFINE_string(
  'accelerators', 'v5e-8', 'accelerators there are, such as v4-32'
)
_CHECK = flags.DEFINE_bool('check', False, 'predict the rate on this machine, and measure it')
# Largest deviation of a checked prediction.
_DEVIATION = 0.2
# Nodes that report to the monitor while its costs are measured.
_REPORTING_NODES = 512


def flops_per_step(agent: Any, spec: Any, rows: int, unrolls: int) -> float:
  """Returns the floating-point operations of a step: acting once, and its share of an update.

  Args:
    agent: with discrete or continuous actions.
    spec: of the environment.
    rows: of an inference batch.
    unrolls: in a learner batch.
  """
  state = jax.eval_shape(agent.init, jax.random.key(0))
  batch = jax.tree.map(
    lambda leaf: jax.ShapeDtypeStruct((unrolls, *leaf.shape), leaf.dtype), unroll_spec(agent, spec)
  )
  inputs = shapes.act_inputs(agent, spec.observations, rows)
  act = operations.count(agent.act, state.params, *inputs)
  update = operations.count(agent.update, state, batch, None)
  return act / rows + update / (unrolls * agent.unroll_period)


def step_costs(config: Any, given: dict[str, str]) -> StepCosts:
  """Measures the costs of a step of the program on an accelerator's host.

  Args:
    config: the resolved options.
    given: launch.py's flags.
  """
  spec, agent = _spec_and_agent(config, given)
  unroll_bytes = Columns(unroll_spec(agent, spec)).item_bytes
  row_bytes = sum(
    math.prod(leaf.shape) * np.dtype(leaf.dtype).itemsize
    for leaf in (*nests.leaves(spec.observations), spec.actions)
  )
  free = {
    'program': PROGRAM,
    'env': config.run.env,
    'env_options': config.run.env_options,
    'unroll_length': str(config.agent.unroll_length),
    'num_actors': str(config.acting.num_actors),
    'envs_per_actor': str(config.acting.envs_per_actor),
    'inference_batch_size': str(config.inference.inference_batch_size),
    'batch_size': str(config.replay.batch_size),
    'inference_ms': '0',
    'update_ms': '0',
  }
  stages = pipeline.measure_stages(free, options.STAGE_SECONDS.value, options.REPEATS.value)[
    'stages'
  ]
  here = lambda name, node: stages[name]['cpu'].get(node, 0.0)  # noqa: E731
  infers, learns = roles.infers(config), roles.learns(config)
  return StepCosts(
    actor=here('environment', 'actor') + here('rpc', 'actor'),
    inference=sum(here(name, infers) for name in ('rpc', 'inference', 'assembling', 'insert'))
    + prediction.overhead(config),
    learner=sum(here(name, learns) for name in ('sample', 'update')),
    replay=sum(here(name, 'replay') for name in ('insert', 'sample', 'update')),
    flops=flops_per_step(
      agent, spec, config.inference.inference_batch_size, config.replay.batch_size
    ),
    request_bytes=row_bytes + 9,  # step_type, reward and discount.
    unroll_bytes=unroll_bytes / agent.unroll_period,
  )


def update_costs(config: Any, given: dict[str, str]) -> Update:
  """Returns what an update of a replica costs, and measures what a report costs the monitor.

  Args:
    config: the resolved options.
    given: launch.py's flags.
  """
  _, agent = _spec_and_agent(config, given)
  params = jax.eval_shape(agent.init, jax.random.key(0)).params
  return Update(
    steps=config.replay.batch_size * agent.unroll_period,
    param_bytes=sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(params)),
    report_seconds=reports.seconds_per_report(_REPORTING_NODES),
  )


def _spec_and_agent(config: Any, given: dict[str, str]) -> tuple[Any, Any]:
  spec = environments.make_spec(config.run.env, config.run.env_options)
  return spec, programs.load(given['program']).make_agent(config)(spec.observations, spec.actions)


def print_costs(costs: StepCosts) -> None:
  """Prints what a step costs."""
  table = output.Table(a_step='<44', cost='>12,.2f', unit='<12')
  for name, value, unit in (
    ('actor: environment, requests', 1e6 * costs.actor, 'us of CPU'),
    ('inference: requests, batches, unrolls, writing', 1e6 * costs.inference, 'us of CPU'),
    ('learner: sampling, updates', 1e6 * costs.learner, 'us of CPU'),
    ('replay', 1e6 * costs.replay, 'us of CPU'),
    ('acting and learning, on the accelerator', 1e-6 * costs.flops, 'MFLOP'),
    ('between actor and inference', costs.request_bytes, 'bytes'),
    ('of an unroll', costs.unroll_bytes, 'bytes'),
  ):
    table.add(name, value, unit)


def print_demand(need: Demand, frames: float, name: str) -> None:
  """Prints the plan for some frames/s on the accelerators of that name."""
  accelerator, units = demands.parse(name)
  there = math.ceil(units / accelerator.per_host)
  print(
    f'\n{frames:,.0f} frames/s are {need.steps_per_second:,.0f} steps/s. On {name} they need:\n'
    f'  {need.hosts} accelerator host(s) (--num_replicas={need.hosts}); the number follows from '
    f'{need.limit}\n'
    f"  {need.host_cores:,.1f} CPU cores of each host, and {need.peak_share:.2%} of the accelerators' "
    'published peak\n'
    f'  {need.actors:,} actors with {need.actor_cores:,.1f} busy cores in all '
    f'(--num_actors={math.ceil(need.actors / need.hosts)} for each replica)\n'
    f'  {need.replay_shards} replay server(s) on each host (--num_replay_shards={need.replay_shards})\n'
    f'  {need.gbits:,.2f} Gbit/s between the actors and each host; {need.unrolls_gbits:,.2f} Gbit/s of '
    'unrolls within it'
  )
  if need.hosts > there:
    print(f'{name} has {there}: the rate is out of reach.')


def print_shares(found: Shares, update: Update, frames: float, name: str) -> None:
  """Prints what all accelerators of that name could do, on paper, and what would be full first."""
  print(
    f'\nOn paper, all of {name} could carry {frames:,.0f} frames/s, {found.steps_per_second:,.0f} '
    f'steps/s, with {found.hosts} hosts and {found.nodes:,} nodes that report. None of it was run.\n'
    f'  {found.updates_per_second:,.1f} updates/s of {found.hosts * update.steps:,.0f} steps; each '
    f'all-reduces {update.param_bytes / 1e6:,.1f} MB in about {1e3 * found.all_reduce_seconds:,.2f} ms\n'
    f'  a report costs the monitor {1e6 * update.report_seconds:,.0f} us'
  )
  table = output.Table(what_is_full='<52', share='>8.1%')
  for what, share in found.full.items():
    table.add(what, share)
  broken = [what for what, share in found.full.items() if share > 1.001]
  first = f'{broken[0]} breaks first' if broken else f'{next(iter(found.full))} is full first'
  print(f'{first}.')


def draw(need: Demand, costs: StepCosts, name: str) -> Figure:
  """Draws the busy cores by kind of process."""
  figure = Figure(figsize=(7, 3), layout='constrained')
  axes = figure.add_subplot()
  for place, node in enumerate(('actor', 'inference', 'learner', 'replay')):
    axes.barh(-place, need.steps_per_second * getattr(costs, node))
    axes.text(0, -place, f' {node}', va='center')
  axes.set_yticks([])
  axes.set_xlabel('busy CPU cores')
  axes.set_title(f'{need.steps_per_second:,.0f} steps/s, {name}', fontsize='medium')
  return figure


def check(config: Any, given: dict[str, str]) -> int:
  """Predicts the rate of this machine, measures it and prints both; returns the exit code.

  The stages are measured before and after the run, since the machine's speed changes.
  """
  before = _stages(given)
  whole = end_to_end.measure(given, config, options.SECONDS.value, options.WARM_UP.value)
  stages = prediction.mean([before, _stages(given)])
  by_node = pipeline.print_stages(stages)
  print()
  pipeline.print_groups(whole['groups'], by_node)
  machine = output.cores()
  left = prediction.cores_left(whole, machine)
  found = prediction.predict(stages, config, left)
  predicted, measured = found.steps_per_second, whole['steps_per_second']
  ratio = measured / predicted
  close = abs(ratio - 1) <= _DEVIATION
  print(
    f'\npredicted {predicted:,.0f} steps/s, limited by {found.limit}; measured {measured:,.0f}; ratio '
    f'{ratio:.2f}, {"within" if close else "more than"} {_DEVIATION:.0%}{"" if close else " apart"}\n'
    f'other processes left {left:.2f} of {machine} cores during the run'
  )
  if left < prediction.QUIET * machine:
    print('the machine is not quiet, so this checks nothing; end the other processes and repeat it')
    return 2
  return 0 if close else 1


def _stages(given: dict[str, str]) -> dict[str, Any]:
  """Returns the costs of the stages, each call of which follows a wait."""
  seconds, repeats = options.STAGE_SECONDS.value, options.REPEATS.value
  return pipeline.measure_stages(given, seconds, repeats, prediction.PAUSE_MS)['stages']


def main(argv: list[str]) -> None:
  """Runs the benchmark; prints the plan and writes the results."""
  del argv
  config, given = options.config(), options.launch_flags()
  if _CHECK.value:
    sys.exit(check(config, given))
  accelerator, units = demands.parse(_ACCELERATORS.value)
  costs = step_costs(config, given)
  print_costs(costs)
  _, repeat = describe(environments.maker(config.run.env, config.run.env_options))
  need = demands.demand(costs, _TARGET.value / repeat, accelerator, units)
  print_demand(need, _TARGET.value, _ACCELERATORS.value)
  update = update_costs(config, given)
  most = demands.most(costs, accelerator, units)
  found = demands.shares(costs, update, most, accelerator, units)
  print_shares(found, update, repeat * most, _ACCELERATORS.value)
  record = {
    'flags': given,
    'costs': vars(costs),
    'demand': vars(need),
    'update': vars(update),
    'shares': vars(found),
  }
  name = output.file_name('capacity', given['program'], config)
  output.write(name, record, draw(need, costs, _ACCELERATORS.value))


def _checked() -> None:
  options.config()
  demands.parse(_ACCELERATORS.value)


if __name__ == '__main__':
  options.run(main, _checked, programs=('sebulba', PROGRAM))
