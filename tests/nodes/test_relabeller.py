"""The relabeller, against a real replay server and parameter server."""

import itertools
import queue
import threading

import jax
import numpy as np
import pytest
from acme.utils.counting import Counter

from agents.seeding import Seed
from nodes.learning.options import TransformOptions
from nodes.learning.parameter_server import ParameterServer
from nodes.relabeller import Relabeller
from nodes.runtime import rpc
from nodes.runtime.counters import ActingCounters
from nodes.runtime.gate import ReadyGate
from nodes.unrolls import tables
from nodes.unrolls.assembler import unroll_spec
from nodes.unrolls.packing import Columns
from nodes.unrolls.reader import UnrollReader
from nodes.unrolls.replay_client import ReplayClient
from nodes.unrolls.table_names import ORIGINALS, RELABELLED, BatchPart
from nodes.unrolls.writer import UnrollWriter
from rundir import audit
from tests.nodes.counter import CounterEnvironment, RelabellingAgent
from tests.waiting import DEADLINE, end_of_writers, wait_until

SIZE = 8  # Of the table of copies.
SPEC = CounterEnvironment([1]).spec()
AGENT = RelabellingAgent()


def originals(count):
  """Unrolls `[N, L, ...]` whose every value is their number."""

  def numbered(leaf):
    number = np.arange(count).reshape(-1, *[1] * len(leaf.shape))
    return np.broadcast_to(number, (count, *leaf.shape)).astype(leaf.dtype)

  return jax.tree.map(numbered, unroll_spec(AGENT, SPEC))


class Learner:
  """A learner whose current incarnation answers, if there is one."""

  def __init__(self):
    self.asked = 0
    self.restart(1)

  def restart(self, version):
    """Begins an incarnation whose parameter is the number of its version."""
    counter = Counter()
    self.server = ParameterServer(ActingCounters(counter, 1), counter, ReadyGate())
    self.publish(version)

  def publish(self, version):
    self.server.set_params(version, np.float32(version))

  def fetch(self, *args):
    self.asked += 1
    if self.server is None:
      raise rpc.retry_later_error()
    return self.server.fetch(*args)


class Monitor:
  """Keeps the latest report."""

  def __init__(self):
    self.latest = {}

  def report(self, node, values):
    assert node == 'relabeller/0'
    self.latest = values


class Run:
  """A replay server, a learner, and relabellers in threads."""

  def __init__(self, serve, connect, directory):
    self.address = serve(
      tables.all_tables(tables.uniform_table(100, 6), tables.relabelled_table(SIZE, 2, 1.0))
    )
    self.directory = str(directory)
    self.monitor = Monitor()
    self.learner = Learner()
    self._connect = connect
    self.errors = queue.SimpleQueue()
    self.produced = []
    self.threads = []

  def write(self):
    """Writes six originals, which the relabellers wait for."""
    writer = UnrollWriter(
      [self.address],
      Columns(unroll_spec(AGENT, SPEC)),
      produced=self.produced.extend,
      tables=(ORIGINALS,),
    )
    writer.start()
    writer.put(originals(6), lambda: None)
    wait_until(lambda: self.size(ORIGINALS) == 6, writer.check)
    writer.close()

  def start(self):
    node = Relabeller(
      lambda *specs: AGENT,
      lambda num_envs, seed: CounterEnvironment([3] * num_envs),
      self._connect(self.learner),
      [self.address],
      self._connect(self.monitor),
      TransformOptions(
        name='relabeller/0',
        sources=(BatchPart(ORIGINALS, 4),),
        target=RELABELLED,
        update_period=0.01,
        audit_dir=self.directory,
        seed=Seed(3),
      ),
    )

    def run():
      try:
        node.run()
      except BaseException as error:
        self.errors.put(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    self.threads.append(thread)
    return thread

  def size(self, table):
    return ReplayClient(self.address).server_info()[table].current_size

  def inserted(self):
    info = ReplayClient(self.address).server_info()[RELABELLED].rate_limiter_info
    return info.insert_stats.completed

  def sampled_until(self, version):
    """Samples copies until they have the parameters of a version."""
    batches = self.copies()
    wait_until(lambda: np.all(next(batches).unrolls.extras['params'] == version))

  def copies(self):
    columns = Columns(unroll_spec(AGENT, SPEC, RELABELLED))
    return iter(UnrollReader([self.address], columns, 4, max_in_flight=1, table=RELABELLED))


@pytest.fixture
def run(serve, connect, tmp_path, stop):
  with end_of_writers():
    started = Run(serve, connect, tmp_path)
    yield started
    started.learner.server.finish_training()
    stop.set()
    for thread in started.threads:
      thread.join(DEADLINE)
      assert not thread.is_alive()
  assert started.errors.empty(), started.errors.get()


def test_copies_have_fresh_extras_and_are_followed_to_their_origins(run):
  run.start()
  run.write()
  found = {}
  for batches, batch in enumerate(run.copies()):
    if batches >= 20 and len(found) > SIZE:
      break
    for i, copy in enumerate(batch.unroll_ids.tolist()):
      unroll = jax.tree.map(lambda x, i=i: x[i], batch.unrolls)
      number, noise = int(unroll.environment_id), float(unroll.extras['noise'][0])
      unchanged = unroll._replace(
        extras={name: x for name, x in unroll.extras.items() if name not in ('params', 'noise')}
      )
      assert all(np.all(leaf == number) for leaf in jax.tree.leaves(unchanged))
      assert np.all(unroll.extras['params'] == 1)
      assert found.setdefault(copy, (number, noise)) == (number, noise)
  assert len({noise for _, noise in found.values()}) == len(found)
  copies, produced = np.array(list(found)), np.array(run.produced)
  origins = audit.origins(run.directory, copies).tolist()
  assert origins == [run.produced[number] for number, _ in found.values()]
  assert not set(found) & set(run.produced)
  assert audit.origins(run.directory, produced).tolist() == run.produced


def test_it_fetches_new_parameters_and_reports_which_it_uses(run):
  run.start()
  run.write()
  for version in (2, 3):
    run.learner.publish(version)
    run.sampled_until(version)
  batches = run.copies()
  wait_until(lambda: next(batches) and run.monitor.latest.get('policy_version') == 3)
  assert run.monitor.latest['unrolls_relabelled'] > 0
  assert 0 <= run.monitor.latest['relabeller_waiting_share'] <= 1
  assert run.learner.server.measure(1.0)['actor_steps'] == 0


@pytest.mark.slow
def test_it_fills_the_table_then_waits_for_samples_and_keeps_fetching(run):
  run.write()
  thread = run.start()
  # The writer holds a batch of four, and the node the next.
  wait_until(lambda: run.monitor.latest.get('unrolls_relabelled') == SIZE + 4)
  run.learner.publish(2)
  asked = run.learner.asked
  wait_until(lambda: run.learner.asked > asked + 3)
  assert len(audit.read(run.directory, audit.RELABELLED)) == SIZE + 4
  assert run.inserted() == SIZE and thread.is_alive()
  run.sampled_until(2)


def test_it_ends_with_the_training_even_if_it_waits_for_originals(run):
  starved = run.start()
  wait_until(lambda: run.learner.asked > 5)
  run.learner.server.finish_training()
  late = run.start()
  for thread in (starved, late):
    thread.join(DEADLINE)
    assert not thread.is_alive()


def test_it_waits_for_a_learner_that_is_down_while_copies_can_be_sampled(run):
  thread = run.start()
  run.write()
  run.sampled_until(1)
  run.learner.server = None
  asked = run.learner.asked
  wait_until(lambda: run.learner.asked > asked + 1)
  for _ in itertools.islice(run.copies(), 10):
    pass
  assert thread.is_alive()
  run.learner.restart(0)  # From a checkpoint: its versions are older.
  run.sampled_until(0)
