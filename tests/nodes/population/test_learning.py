"""Populations that learn Catch from badly chosen ranges, in one process."""

import jax
import numpy as np
import pytest

from agents.anakin.environments.catch import Catch
from agents.anakin.loop import AnakinLoop
from agents.population import space
from agents.seeding import Seed
from agents.tuned import Tuned
from agents.vtrace.agent import VTrace
from agents.vtrace.config import VTraceConfig
from nodes.population.member import Member
from nodes.population.options import Place
from rundir import lineage
from tests.nodes.population.instant import Client, serving

MEMBERS, CALLS, READY_CALLS, ENVS = 8, 80, 4, 16
UPDATES = 10  # In a call.
STEPS_PER_CALL = UPDATES * ENVS * 20
# Nearly all learning rates of this range are too low or too high.
TUNE = 'learning_rate=3e-6..3e-1,entropy_cost=1e-4..1'


def final_scores(tmp_path, selection):
  """Trains a population in turns, as if all members were equally fast; returns their last scores."""
  environment, config = Catch(), VTraceConfig(unroll_length=20, mlp_sizes=(64,))
  axes = space.parse(TUNE, config)
  num_steps, ready = MEMBERS * CALLS * STEPS_PER_CALL, READY_CALLS * STEPS_PER_CALL
  board = serving(tmp_path, axes, num_steps, selection=selection, ready_steps=ready)
  specs = environment.observation_spec, environment.action_spec
  rng = np.random.default_rng(1)
  drawn = space.spread(axes, MEMBERS, rng)
  loop = AnakinLoop(
    Tuned(VTrace, config, drawn[0], *specs), environment, ENVS, jax.local_devices()[:1], UPDATES
  )
  states = []
  for k, values in enumerate(drawn):
    state = loop.get(loop.init(Seed(k).key()))
    values = {name: np.float32(value) for name, value in values.items()}
    states.append(loop.put(state._replace(learner=state.learner._replace(values=values))))
  loop.compile(states[0])
  clients = [Client(board) for _ in states]
  assert loop.steps_per_call == STEPS_PER_CALL
  members = [Member(Place(k, ready, client)) for k, client in enumerate(clients)]
  for call in range(CALLS):
    counts = {'actor_steps': (call + 1) * STEPS_PER_CALL}
    for k, member in enumerate(members):
      before = states[k].learner
      state, report = loop.train(states[k])
      if not report.finite:
        member.diverge()
        state = loop.init(Seed(k).child('diverged').key())._replace(learner=before)
      member.played(
        STEPS_PER_CALL, float(report.episodes.episodes), float(report.episodes.return_sum)
      )
      found = member.exchange(state.learner, counts)
      states[k] = state if found is None else loop.put(state._replace(learner=found))
  for k, member in enumerate(members):
    member.finish(states[k].learner, counts, lambda: False)
  return [board._board.scores[k] for k in range(MEMBERS)]


@pytest.mark.nightly
@pytest.mark.trains
def test_few_members_learn_alone(tmp_path):
  alone = final_scores(tmp_path, 'none')
  assert np.mean(np.isfinite(alone)) == 1 and np.mean(alone) < 0.5
  assert not any(event.source for event in lineage.read(str(tmp_path)))


@pytest.mark.trains
@pytest.mark.parametrize(
  'selection', ['truncation', pytest.param('tournament', marks=pytest.mark.nightly)]
)
def test_all_members_learn_what_few_of_them_would_alone(tmp_path, selection):
  together = final_scores(tmp_path, selection)
  assert min(together) >= 0.95, together
  assert {event.source_member for event in lineage.read(str(tmp_path))} > {None}
