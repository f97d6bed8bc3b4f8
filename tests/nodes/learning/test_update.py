"""The learner alone: it continues exactly from what it saved, and stops at a loss that is not finite."""

import types
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
from acme.utils.counting import Counter

from agents.agent import UpdateOutput
from agents.seeding import Seed
from agents.types import Timestep, Unroll
from agents.vtrace.agent import VTrace
from agents.vtrace.config import VTraceConfig
from environments.catch import Catch
from nodes.learning import serialisation
from nodes.learning.update import Learner
from nodes.runtime import lifecycle
from rundir import checkpoints

SPEC = Catch(1, 0).spec()
AGENT = VTrace(VTraceConfig(unroll_length=4), SPEC.observations, SPEC.actions)
BATCH = 3


class _State(NamedTuple):
  params: Any


class _Prioritized:
  """An agent that learns nothing; the unrolls are their own priorities."""

  def init(self, key):
    return _State(jax.numpy.zeros(1))

  def update(self, state, unrolls, probabilities):
    return UpdateOutput(state, unrolls, {})


def _batch(seed, reward=1.0):
  rng = np.random.default_rng(seed)
  shape = (BATCH, AGENT.unroll_rows)
  unrolls = Unroll(
    timestep=Timestep(
      step_type=np.ones(shape, np.uint8),
      reward=np.full(shape, reward, np.float32),
      discount=np.ones(shape, np.float32),
      observation=rng.random((*shape, *SPEC.observations.shape)).astype(SPEC.observations.dtype),
    ),
    action=rng.integers(0, 3, shape).astype(np.int32),
    extras={'behaviour_logits': np.zeros((*shape, 3), np.float32)},
    policy_version=np.zeros(shape, np.int32),
    core_state=jax.device_get(AGENT.initial_core_state(BATCH)),
    environment_id=np.arange(BATCH, dtype=np.int32),
  )
  return types.SimpleNamespace(
    unrolls=unrolls,
    unroll_ids=10 * seed + np.arange(BATCH),
    keys=None,
    probabilities=np.ones(BATCH, np.float32),
  )


def _learner(batches, published, trained=lambda ids, step: None, mix=None, **options):
  learner = Learner(
    AGENT,
    jax.devices()[:1],
    lambda version, params: published.append(version),
    lambda: None,
    options.pop('counter', None) or Counter(),
    seed=Seed(len(published)),
    mix=mix,
    **options,
  )
  learner.learn_from(batches, trained=trained)
  return learner


@pytest.mark.slow
def test_a_restored_learner_continues_as_if_nothing_had_happened(tmp_path):
  batches = [_batch(i) for i in range(5)]
  straight = _learner(batches, [])
  for _ in batches:
    straight.step()

  first = _learner(batches[:2], [])
  first.step(), first.step()
  state = serialisation.serialise(first.save())
  checkpoints.write(str(tmp_path), {'learner_steps': first.learner_steps}, state, keep=1)
  published = [7]  # Another seed: nothing of the fresh learner may remain.
  second = _learner(batches[2:], published)
  second.restore(serialisation.restore(checkpoints.newest(str(tmp_path)), second.save()))
  for _ in range(3):
    second.step()
  assert published == [7, 0, 2, 3, 4, 5]
  jax.tree.map(np.testing.assert_array_equal, second.save(), straight.save())


def test_every_unroll_learned_from_is_recorded_with_its_step():
  recorded = []
  learner = _learner([_batch(1), _batch(2)], [], lambda i, s: recorded.append((i.tolist(), s)))
  learner.step(), learner.step()
  assert recorded == [([10, 11, 12], 1), ([20, 21, 22], 2)]


def test_without_actors_each_update_counts_its_steps_before_it_is_asked_whether_it_was_the_last():
  counter, counted = Counter(), {'actor_steps': 6, 'environment_frames': 24}
  counter.increment(actor_steps=12, environment_frames=48)  # Of a checkpoint.
  learner = _learner([_batch(1), _batch(2)], [], counter=counter, counted=counted)
  for steps in (18, 24):
    learner.step()
    assert learner.actor_steps() == counter.get_counts()['actor_steps'] == steps
  assert counter.get_counts()['environment_frames'] == 96


def test_priorities_that_replay_has_no_room_for_are_offered_again_after_a_check():
  offers, checks = [], []

  def update_priorities(keys, priorities):
    offers.append((keys.tolist(), np.asarray(priorities).tolist()))
    return len(offers) == 3

  learner = Learner(
    _Prioritized(),
    jax.devices()[:1],
    lambda version, params: None,
    lambda: checks.append(len(offers)),
    Counter(),
    seed=Seed(0),
  )
  batch = types.SimpleNamespace(
    unrolls=np.float32([0.25, 0.5, 2.0]),
    unroll_ids=np.arange(BATCH),
    keys=np.array([7, 8, 9], np.uint64),
    probabilities=np.ones(BATCH, np.float32),
  )
  learner.learn_from([batch], update_priorities)
  learner.step()
  assert offers == [([7, 8, 9], [0.25, 0.5, 2.0])] * 3
  assert [count for count in checks if count] == [1, 2]  # The others wait for the batch.


def test_parameters_are_mixed_after_every_step_and_none_that_are_not_finite():
  seen = []

  def mix(params):
    seen.append(jax.device_get(params))
    return jax.tree.map(lambda x: 2 * x, params)

  learner = _learner([_batch(0), _batch(1, reward=np.nan)], [], mix=mix)
  learner.step()
  doubled = jax.tree.map(lambda x: 2 * x, seen[0])
  jax.tree.map(np.testing.assert_array_equal, learner.get_variables(['params'])[0], doubled)
  with pytest.raises(lifecycle.NonRetryableError, match='learner step 2 is not finite'):
    learner.step()
  assert len(seen) == 1


def test_another_state_may_follow_a_step_and_an_update_that_is_not_finite_is_dropped():
  seen, published = [], []

  def follow(state, finite):
    state = jax.device_get(state)
    seen.append((finite, int(state.learner_steps), state.params))
    return state._replace(params=jax.tree.map(np.zeros_like, state.params)) if finite else None

  batches = [_batch(0), _batch(1, reward=np.nan), _batch(2)]
  learner = _learner(batches, published, follow=follow)
  learner.step()
  assert all(not leaf.any() for leaf in jax.tree.leaves(learner.get_variables(['params'])))
  learner.step()
  assert learner.measure(1.0)['learner_steps'] == 2
  learner.step()
  assert [(finite, steps) for finite, steps, _ in seen] == [(True, 1), (False, 2), (True, 3)]
  assert all(not leaf.any() for leaf in jax.tree.leaves(seen[1][2])), 'those before the update'
  assert any(leaf.any() for leaf in jax.tree.leaves(seen[2][2]))
  assert published == [0, 1, 2, 3]


def test_a_loss_that_is_not_finite_ends_learning_and_is_not_saved():
  learner = _learner([_batch(0), _batch(1, reward=np.nan), _batch(2)], [])
  learner.step(), learner.step()
  with pytest.raises(
    lifecycle.NonRetryableError, match=r'learner step 2 is not finite: .*loss is nan'
  ):
    learner.save()
  with pytest.raises(lifecycle.NonRetryableError, match='learner step 2 is not finite'):
    learner.get_variables(['params'])
  with pytest.raises(lifecycle.NonRetryableError, match='learner step 2 is not finite'):
    learner.step()
