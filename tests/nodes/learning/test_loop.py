"""The training loop: what it does last."""

import contextlib
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
