"""The arithmetic of a capacity plan, and the operations of an agent."""

import dataclasses
import functools

import jax
import numpy as np
import pytest
from acme import specs

from agents.ppo.agent import PPO
from agents.ppo.config import PPOConfig
from agents.vtrace.agent import VTrace
from agents.vtrace.config import VTraceConfig
from benchmarks import capacity, operations
from benchmarks.demand import StepCosts, demand, parse

COSTS = StepCosts(
  actor=400e-6,
  inference=10e-6,
  learner=6e-6,
  replay=2e-6,
  flops=70e6,
  request_bytes=7000,
  unroll_bytes=8000,
)
V5E = parse('v5e-8')
SPEC = specs.EnvironmentSpec(
  specs.Array((100,), np.float32),
  specs.DiscreteArray(3),
  specs.Array((), np.float32),
  specs.BoundedArray((), np.float32, 0.0, 1.0),
)


def test_a_plan_has_what_its_rate_costs():
  need = demand(COSTS, 40_000.0, *V5E)
  assert need.hosts == 1
  assert need.actors == 20 and need.actor_cores == pytest.approx(16.0)
  assert need.host_cores == pytest.approx(0.72)
  assert need.replay_shards == 1
  assert need.peak_share == pytest.approx(40_000 * 70e6 / (8 * 197e12))
  assert need.gbits == pytest.approx(2.24)
  assert need.unrolls_gbits == pytest.approx(5.12)


@pytest.mark.parametrize(
  'change, hosts, limit',
  [
    ({}, 2, "the interpreter of a host's inference-learner"),
    ({'inference': 0.1e-6, 'learner': 0.1e-6}, 1, 'accelerators'),
    ({'replay': 5e-3}, 3, 'the cores of a host'),
    ({'request_bytes': 10_000_000}, 40, 'the network of a host'),
  ],
)
def test_the_scarcest_resource_decides_the_number_of_hosts(change, hosts, limit):
  need = demand(dataclasses.replace(COSTS, **change), 100_000.0, *V5E)
  assert (need.hosts, need.limit) == (hosts, limit)


def test_every_host_that_has_accelerators_is_used():
  need = demand(COSTS, 1000.0, *parse('v3-2048'))
  assert (need.hosts, need.limit) == (256, 'accelerators')
  assert need.actors == 256


@pytest.mark.parametrize('name', ['v5e', 'v5e-0', 'h100-8', 'v9-8'])
def test_unknown_accelerators_are_rejected_by_the_names_that_there_are(name):
  with pytest.raises(ValueError, match=f'--accelerators={name} is unknown; use .*v5e-8'):
    parse(name)


def test_operations_are_those_of_acting_once_and_of_a_share_of_an_update():
  config = VTraceConfig(torso='mlp', mlp_sizes=(256, 256), unroll_length=4)
  agent = VTrace(config, SPEC.observations, SPEC.actions)
  forward = 2 * (100 * 256 + 256 * 256 + 256 * 4)
  # Acting once; five rows forward and backward for four steps. A gradient costs twice a value.
  expected = forward + 3 * forward * 5 / 4
  assert capacity.flops_per_step(agent, SPEC, 8, 8) == pytest.approx(expected, rel=0.15)


def test_a_loop_counts_as_often_as_it_runs():
  matrix = jax.ShapeDtypeStruct((4, 4), np.float32)
  once = 2 * 4**3

  def branches(x):
    return jax.lax.cond(x[0, 0] > 0, lambda x: x @ x @ x, lambda x: x @ x, x)

  assert operations.count(lambda x: x @ x, matrix) == once
  assert (
    operations.count(lambda x: jax.lax.fori_loop(0, 5, lambda i, y: y @ x, x), matrix) == 5 * once
  )
  assert operations.count(branches, matrix) == 2 * once
  image, kernel = (
    jax.ShapeDtypeStruct(shape, np.float32) for shape in ((2, 8, 8, 3), (3, 3, 3, 6))
  )
  convolve = functools.partial(
    jax.lax.conv_general_dilated,
    window_strides=(1, 1),
    padding='VALID',
    dimension_numbers=('NHWC', 'HWIO', 'NHWC'),
  )
  assert operations.count(convolve, image, kernel) == 2 * (2 * 6 * 6 * 6) * (3 * 3 * 3)


def test_epochs_of_ppo_are_counted():
  def flops(**options):
    config = PPOConfig(torso='mlp', mlp_sizes=(64,), unroll_length=4, num_minibatches=2, **options)
    agent = PPO(config, SPEC.observations, SPEC.actions)
    return capacity.flops_per_step(agent, SPEC, 8, 8)

  one, two, three = (flops(num_epochs=n) for n in (1, 2, 3))
  assert two - one == pytest.approx(three - two, rel=1e-6) and two > 1.4 * one
