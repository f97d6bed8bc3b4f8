"""Weak scaling: its prediction, what replicas share on paper, and the benchmark at its smallest."""

import dataclasses

import pytest

from benchmarks import capacity, prediction, replicas, reports
from benchmarks.all_reduce import Ring
from benchmarks.demand import StepCosts, Update, most, parse, ring_seconds, shares
from benchmarks.simulated.program import PROGRAM
from programs import registry
from programs.options import configs
from tests.agents.subprocesses import run_python
from tests.benchmarks import smoke
from tests.benchmarks.test_capacity import COSTS

_US = 1e-6
_NO_RING = Ring(1e9, 0.0, 2)
# 20 us a step over all nodes, 10 of them of one interpreter; an update of 1,280 steps takes 320 ms.
STAGES = {
  'environment': {'cpu': {'actor': 2 * _US}, 'python': 2 * _US, 'wall': 2 * _US},
  'rpc': {
    'cpu': {'actor': 2 * _US, 'inference_learner': 2 * _US},
    'python': 2 * _US,
    'wall': 4 * _US,
  },
  'inference': {'cpu': {'inference_learner': 4 * _US}, 'python': 2 * _US, 'wall': 20 * _US},
  'assembling': {'cpu': {'inference_learner': 1 * _US}, 'python': 1 * _US, 'wall': 1 * _US},
  'insert': {
    'cpu': {'inference_learner': 2 * _US, 'replay': 2 * _US},
    'python': 1 * _US,
    'wall': 4 * _US,
  },
  'sample': {
    'cpu': {'inference_learner': 2 * _US, 'replay': 2 * _US},
    'python': 2 * _US,
    'wall': 4 * _US,
  },
  'update': {'cpu': {'inference_learner': 1 * _US}, 'python': 1 * _US, 'wall': 250 * _US},
}


def predict(replicas, ring=_NO_RING, param_bytes=4.0, **given):
  given = {'inference_batch_size': 256, 'envs_per_actor': 256, 'num_steps': 10**9} | given
  config = configs.make_config(registry.load(PROGRAM), {'num_replicas': replicas, **given})
  return prediction.predict_replicas(STAGES, config, 2.0, ring, param_bytes)


@pytest.fixture(autouse=True)
def overhead(monkeypatch):
  monkeypatch.setattr(prediction, 'BATCH_OVERHEAD', 0.0)


def test_replicas_whose_accelerators_are_slow_share_the_cores_without_loss():
  for n in (1, 2, 4, 8):
    found = predict(n)
    assert found.steps_per_second == pytest.approx(n * 4000)
    assert found.limit == 'the accelerators that learn'


def test_the_cores_end_what_the_accelerators_could_do():
  found = predict(100)
  assert found.limit == 'the cores'
  assert found.steps_per_second == pytest.approx(0.8 * 2.0 / (20 * _US))


def test_an_all_reduce_makes_every_update_longer():
  # 14 steps of half a megabyte and 28 of a few bytes; eight processes share two cores.
  ring = Ring(1e9, 0.0001, 2)
  taken = 14 * 0.5e6 / 0.25e9 + (14 + 28) * 0.0004
  found = predict(8, ring, 4e6)
  assert found.steps_per_second == pytest.approx(8 * 1280 / (0.32 + taken))
  assert predict(1, ring, 4e6).steps_per_second == pytest.approx(4000)


def test_a_ring_sends_twice_what_each_host_has_whatever_their_number():
  assert ring_seconds(1e9, 1, 1e9, 0.1) == 0
  assert ring_seconds(1e9, 2, 1e9, 0.0) == pytest.approx(1.0)
  assert ring_seconds(1e9, 1000, 1e9, 0.0) == pytest.approx(2.0, rel=0.01)
  assert ring_seconds(0, 5, 1e9, 0.1) == pytest.approx(0.8)


UPDATE = Update(steps=640, param_bytes=6.8e6, report_seconds=200 * _US)


@pytest.mark.parametrize(
  'change, first',
  [
    ({}, "the interpreter of a host's inference-learner"),
    ({'request_bytes': 1e7}, 'the network of a host'),
    ({'flops': 1e12}, 'the accelerators, at 10% of their peak'),
  ],
)
def test_at_the_most_that_hosts_carry_the_scarcest_part_of_each_is_full(change, first):
  costs: StepCosts = dataclasses.replace(COSTS, **change)
  pod = parse('v5e-128')
  rate = most(costs, *pod)
  found = shares(costs, UPDATE, rate, *pod)
  assert (found.hosts, next(iter(found.full))) == (16, first)
  assert found.full[first] == pytest.approx(1.0)
  assert list(found.full.values()) == sorted(found.full.values(), reverse=True)


def test_what_all_hosts_share_fills_as_hosts_are_added(capsys):
  def at(name):
    pod = parse(name)
    return shares(COSTS, UPDATE, most(COSTS, *pod), *pod)

  few, many = at('v4-128'), at('v4-2048')
  assert (few.hosts, many.hosts) == (16, 256)
  monitor, reduce = 'the interpreter of the monitor', "the all-reduce, of an update's time"
  # 25 actors a host of 50,000 steps/s, and its learner; of either group at most 200 reports a second.
  assert few.full[monitor] == pytest.approx((16 * 25 / 2 + 16) * 200 * _US / 0.8)
  assert many.full[monitor] == pytest.approx((200 + 200) * 200 * _US / 0.8)
  assert many.full[reduce] > few.full[reduce]
  assert many.updates_per_second == pytest.approx(few.updates_per_second)
  capacity.print_shares(many, dataclasses.replace(UPDATE, report_seconds=1.0), 1e6, 'v4-2048')
  said = capsys.readouterr().out
  assert 'On paper' in said and 'None of it was run' in said
  assert said.splitlines()[-1].endswith('full first.')


def test_tpu7x_has_two_devices_a_chip():
  accelerator, units = parse('tpu7x-16')
  assert units / accelerator.per_host == 2  # Hosts of four chips.
  assert accelerator.peak * accelerator.per_host == pytest.approx(4 * 2307e12)


def test_the_simulated_gradient_is_summed_over_all_devices():
  flags = {'XLA_FLAGS': '--xla_force_host_platform_device_count=4', 'JAX_PLATFORMS': 'cpu'}
  kinds, difference = run_python('-m', 'tests.benchmarks.simulated_update', **flags).split()
  assert kinds == 'all-reduce' and float(difference) < 1e-5


def test_a_report_costs_the_monitor_some_time_and_is_on_the_disk():
  assert reports.seconds_per_report(3, rounds=50) > 0


@pytest.mark.parametrize('text', ['x', '0', '-1', ''])
def test_replicas_are_counted_from_1(text):
  assert replicas.numbers(['1', '8']) == [1, 8]
  with pytest.raises(ValueError, match=f'--replicas=1,{text}: {text!r} is not a number from 1 on'):
    replicas.numbers(['1', text])


@pytest.mark.nightly
def test_replicas_are_launched_and_predicted(tmp_path):
  flags = ('--replicas=1,2', '--seconds=2', '--warm_up=0', '--stage_seconds=0.05', '--repeats=1')
  flags += ('--envs_per_actor=16', '--inference_batch_size=16', '--batch_size=8', '--update_ms=50')
  lines, record = smoke.run('replicas', tmp_path, 'replicas-simulated', *flags, '--num_params=1000')
  assert [row['replicas'] for row in record['rows']] == [1, 2]
  assert any(line.split()[:1] == ['2'] and 'the ' in line for line in lines)
  for row in record['rows']:
    assert row['groups']['inference_learner']['nodes'] == row['replicas']
    assert row['predicted']['steps_per_second'] > 0 and row['steps_per_second'] > 0
  assert replicas.changes(2)['num_replicas'] == 2
