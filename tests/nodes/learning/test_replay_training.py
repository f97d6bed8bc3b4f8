"""Training from replay: what it reports first, and what it does last."""

import threading
import types
from concurrent import futures
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from agents.agent import UpdateOutput
from agents.seeding import Seed
from nodes.learning import serialisation
from nodes.learning.options import LearningOptions, TrainingOptions
from nodes.learning.replay_training import ReplayTraining, prepare
from nodes.learning.training import Training
from nodes.runtime import lifecycle
from nodes.runtime.counters import ActingTotals
from nodes.runtime.options import RunOptions
from nodes.unrolls import tables
from nodes.unrolls.assembler import unroll_spec
from nodes.unrolls.packing import Columns
from nodes.unrolls.table_names import UNROLLS, BatchPart
from nodes.unrolls.writer import UnrollWriter
from rundir import checkpoints, saved_params
from tests.nodes.counter import CounterAgent, CounterEnvironment


def test_a_stopped_learner_ends_the_writing_of_unrolls_before_its_last_checkpoint(tmp_path):
  """A recording, too: the process may exit as soon as the checkpoint is written."""

  class Stopping(Training):
    def _counts(self):
      return {}

    def _is_trained(self):
      return False

    def _step(self):
      raise lifecycle.Stopped

    def _after_step(self, checkpointer):
      raise AssertionError('the step has not ended')

    def _stop_writing(self):
      did.append('unrolls')

    def _save(self):
      did.append('checkpoint')
      return {}, np.zeros(1)

    def _final_params(self):
      raise AssertionError('training has not ended')

    def _measure(self, seconds):
      return {}

  did = []
  run = RunOptions(run_dir=str(tmp_path))
  training = Stopping('learner/0', run, str(tmp_path), None, threading.Event())
  training.run()
  assert did == ['unrolls', 'checkpoint']


def test_a_learner_reports_its_counters_until_it_has_measurements():
  did = []
  training = types.SimpleNamespace(
    _service=types.SimpleNamespace(check=lambda: None),
    _stop=threading.Event(),
    _prepared=types.SimpleNamespace(first_step=7),
    _counts=lambda: {'actor_steps': 5},
    _learner=types.SimpleNamespace(learner_steps=7),
    _reporter=types.SimpleNamespace(
      maybe_count=did.append, maybe_report=lambda: did.append('everything')
    ),
    _waiting=types.SimpleNamespace(check=lambda learner_steps: None),
  )
  for learner_steps in (7, 8, 9):
    training._learner.learner_steps = learner_steps
    ReplayTraining._check(training)
  assert did == [{'actor_steps': 5}, {'actor_steps': 5}, 'everything']


class _State(NamedTuple):
  params: Any
  learner_steps: Any


class _Agent(CounterAgent):
  """Its parameter is the number of its updates."""

  def init(self, key):
    return _State(jnp.float32(0), jnp.int32(0))

  def update(self, state, unrolls, probabilities):
    state = _State(state.params + 1, state.learner_steps + 1)
    return UpdateOutput(state, None, {'loss': state.params})


class _Actors:
  """Sixty unrolls in replay, and ten actor steps with each version of the parameters."""

  def __init__(self, prepared, address):
    columns = Columns(unroll_spec(prepared.agent, prepared.environment_spec))
    self._unrolls = columns.unflatten(
      {name: np.zeros((60, *shape), dtype) for name, (shape, dtype) in columns.stored.items()}
    )
    self._writer = UnrollWriter([address], columns)
    self._counter = prepared.counter

  def set_params(self, version, params):
    self._counter.increment(actor_steps=10, environment_frames=40)

  def compile(self):
    pass

  def start(self):
    self._writer.start()
    self._writer.put(self._unrolls, lambda: None)

  def check(self):
    self._writer.check()

  def measure(self, seconds):
    return {}

  def totals(self):
    return ActingTotals(self._counter.get_counts()['actor_steps'], 2.0, 6.0, 8.0)

  def finish_training(self):
    self._counter.increment(actor_steps=1)  # The last that the actors do.
    self._writer.close()


class _Monitor:
  """Ends the program once training has finished."""

  def __init__(self):
    self.futures, self.stop, self.final = self, threading.Event(), None

  def report(self, node, values):
    return self._done()

  def count(self, node, counts):
    return self._done()

  def report_training_finished(self, node, values):
    self.final = values
    self.stop.set()
    return self._done()

  def _done(self):
    reply: futures.Future = futures.Future()
    reply.set_result(None)
    return reply


class _Member:
  """Is replaced after its second step, and after its last one."""

  def __init__(self):
    self.seen = []

  def played(self, steps, episodes, return_sum):
    self.seen.append((steps, episodes, return_sum))

  def exchange(self, learner, counts):
    return _State(np.float32(100), learner.learner_steps) if len(self.seen) == 2 else None

  def finish(self, learner, counts, should_stop):
    self.last = float(learner.params)
    return _State(np.float32(7), learner.learner_steps)

  def repeat_end(self):
    assert self.last, 'before the end'
    return futures.Future()

  def measure(self):
    return {}


def train(tmp_path, serve, member=None):
  """Trains to the end; returns the newest checkpoint, and what was reported at the end."""
  address, monitor = serve(tables.queue_table(64)), _Monitor()
  options = TrainingOptions(
    name='learner/0',
    run=RunOptions(num_steps=50, run_dir=str(tmp_path), checkpoint_period=1e9, checkpoints_kept=1),
    learning=LearningOptions(),
    batch_parts=(BatchPart(UNROLLS, 2),),
    seed=Seed(0),
  )
  prepared = prepare(lambda *specs: _Agent(), lambda n, seed: CounterEnvironment([3]), options)
  actors = _Actors(prepared, address)
  ReplayTraining(prepared, options, actors, [address], monitor, monitor.stop, member=member).run()
  return checkpoints.newest(checkpoints.directory(str(tmp_path))), monitor.final


def test_a_member_of_a_population_continues_as_it_is_told_also_at_the_end(tmp_path, serve):
  member = _Member()
  found, _ = train(tmp_path, serve, member)
  steps = found.counts['learner_steps']
  assert member.last == 100 + steps - 2
  assert [seen[1:] for seen in member.seen] == [(2, 6), *[(0, 0)] * (steps - 1)]
  assert [seen[0] for seen in member.seen] == [10, *[10] * (steps - 1)]
  state = serialisation.restore(found, jax.device_get(_Agent().init(None)))
  assert state == _State(7, steps)
  assert serialisation.params(saved_params.read(str(tmp_path), 'final'), np.float32(0)) == 7


def test_finished_training_leaves_a_checkpoint_of_its_end(tmp_path, serve):
  """--resume with more steps continues from it, however long ago the last periodic one was."""
  found, reported = train(tmp_path, serve)
  final = serialisation.params(saved_params.read(str(tmp_path), 'final'), np.float32(0))
  counts = {name: reported[name] for name in found.counts}
  assert counts == found.counts | {'actor_steps': found.counts['actor_steps'] + 1}
  steps = found.counts['learner_steps']
  # The parameters of the last step have been published, with ten steps more.
  assert found.counts == {
    'actor_steps': 10 * (steps + 1),
    'environment_frames': 40 * (steps + 1),
    'learner_steps': steps,
  }
  state = serialisation.restore(found, jax.device_get(_Agent().init(None)))
  assert state == _State(steps, steps) and final == steps >= 5
