"""Anakin's node as a member of a population, with a real server of the leaderboard."""

import functools
import threading

import pytest

from agents.anakin.environments.catch import Catch
from agents.seeding import Seed
from agents.tuned import Tuned
from agents.vtrace.agent import VTrace
from agents.vtrace.config import VTraceConfig
from nodes.anakin import Anakin
from nodes.learning.options import LoopOptions
from nodes.monitor import Monitor
from nodes.population.options import Place
from nodes.runtime.options import RunOptions
from rundir import checkpoints, final_params, learners, lineage
from tests.nodes.population.instant import Client, serving
from tests.waiting import DEADLINE, wait_until

CONFIG = VTraceConfig(unroll_length=5, mlp_sizes=(16,))
tuned = functools.partial(functools.partial, Tuned, VTrace, CONFIG)


def train(run_dir, connect, stop, make_agent, place=None, num_steps=1000, period=0.0):
  """Trains a node to its end; returns the monitor's status."""
  run_dir.mkdir(exist_ok=True)
  stop.clear()
  monitor = Monitor(str(run_dir), num_steps=num_steps, evaluators=[])
  node = Anakin(
    make_agent,
    Catch,
    connect(monitor),
    LoopOptions(num_envs=8, updates_per_call=2),
    RunOptions(num_steps=num_steps, run_dir=str(run_dir), checkpoint_period=period),
    seed=Seed(1),
    name='member/0',
    member=place,
  )
  errors = []

  def run():
    try:
      node.run()
    except BaseException as error:
      errors.append(error)

  thread = threading.Thread(target=run, daemon=True)
  thread.start()
  ended = lambda: errors or monitor.progress()['finished']  # noqa: E731
  wait_until(ended, deadline=DEADLINE)
  stop.set()
  thread.join(DEADLINE)
  assert not errors and not thread.is_alive(), errors
  return monitor.status()


def final(run_dir, learner):
  with open(final_params.path(learners.directory(str(run_dir), learner)), 'rb') as file:
    return file.read()


@pytest.mark.slow
def test_a_population_of_one_is_anakin_bit_for_bit_and_its_best(tmp_path, connect, stop):
  alone, member = tmp_path / 'alone', tmp_path / 'member'
  train(alone, connect, stop, functools.partial(VTrace, CONFIG))
  place = Place(0, 200, connect(serving(member)))
  status = train(member, connect, stop, tuned({}), place)
  assert final(alone, 0) == final(member, 1)
  events = lineage.read(str(member))
  assert len(events) >= 2 and not any(event.source for event in events)
  assert status['latest']['member/0']['score'] == pytest.approx(events[-1].score)


@pytest.mark.slow
def test_a_member_that_has_diverged_continues_as_the_best(tmp_path, connect, stop):
  """With this learning rate every update is beyond all floats."""
  client = Client(serving(tmp_path, resample=0.0))
  train(tmp_path, connect, stop, tuned({'learning_rate': 1e-3}), Place(0, 500, client))
  diverging = tuned({'learning_rate': 1e38})
  status = train(tmp_path, connect, stop, diverging, Place(1, 200, client), num_steps=2000)
  events = [event for event in lineage.read(str(tmp_path)) if event.member == 1]
  assert events[0].score is None and events[0].source_member == 0
  assert events[0].next_values['learning_rate'] in (8e-4, 1.2e-3)
  assert events[-1].score is not None and status['latest']['member/0']['learner_steps'] > 10


@pytest.mark.slow
def test_a_member_resumes_with_the_values_that_it_had(tmp_path, connect, stop):
  client = Client(serving(tmp_path, resample=0.0))
  with_rate = lambda rate: tuned({'learning_rate': rate})  # noqa: E731
  train(tmp_path, connect, stop, with_rate(3e-3), Place(0, 10**6, client), period=1e9)
  directory = checkpoints.directory(learners.directory(str(tmp_path), 1))
  assert checkpoints.newest(directory).counts['actor_steps'] >= 1000
  # The graph of the resumed run draws the same values; others show which ones count.
  status = train(
    tmp_path, connect, stop, with_rate(9e-3), Place(0, 200, client), num_steps=1500, period=1e9
  )
  assert status['latest']['member/0']['learning_rate'] == pytest.approx(3e-3)
  assert lineage.read(str(tmp_path))[-1].values['learning_rate'] == pytest.approx(3e-3)
