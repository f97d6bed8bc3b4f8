"""The training loop: what it reports first, and what it does last."""

import contextlib
import threading
import types

from nodes.learning import loop
from nodes.runtime import lifecycle


def test_a_stopped_learner_ends_the_writing_of_unrolls_before_its_last_checkpoint():
  """A recording, too: the process may exit as soon as the checkpoint is written."""

  def step():
    raise lifecycle.Stopped

  did = []
  training = types.SimpleNamespace(
    _prepared=types.SimpleNamespace(trained=False),
    _options=types.SimpleNamespace(run=types.SimpleNamespace(num_steps=1)),
    _learner=types.SimpleNamespace(actor_steps=lambda: 0, step=step),
    _service=types.SimpleNamespace(stop_writing=lambda: did.append('unrolls')),
    _checkpointer=types.SimpleNamespace(write_now=lambda: did.append('checkpoint')),
    _counter=types.SimpleNamespace(get_counts=dict),
    _reporter=contextlib.nullcontext(),
    _finished=False,
  )
  loop._Training.run(training)
  assert did == ['unrolls', 'checkpoint']


def test_a_learner_reports_its_counters_until_it_has_measurements():
  did = []
  training = types.SimpleNamespace(
    _service=types.SimpleNamespace(check=lambda: None),
    _stop=threading.Event(),
    _prepared=types.SimpleNamespace(first_step=7),
    _learner=types.SimpleNamespace(learner_steps=7),
    _counter=types.SimpleNamespace(get_counts=lambda: {'actor_steps': 5}),
    _reporter=types.SimpleNamespace(
      maybe_count=did.append, maybe_report=lambda: did.append('everything')
    ),
    _waiting=types.SimpleNamespace(check=lambda learner_steps: None),
  )
  for learner_steps in (7, 8, 9):
    training._learner.learner_steps = learner_steps
    loop._Training._check(training)
  assert did == [{'actor_steps': 5}, {'actor_steps': 5}, 'everything']
