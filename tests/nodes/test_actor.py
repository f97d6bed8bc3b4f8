"""Actor and evaluator, which talk to real servers."""

import io
import types

import dm_env
import numpy as np
import pytest
from PIL import Image

from agents.seeding import Seed
from environments.base import Exhausted
from environments.catch import Catch
from nodes import evaluator as evaluator_lib
from nodes.actor import Actor
from nodes.evaluation.episodes import complete_rounds, play_episodes, record_video
from nodes.evaluation.remote import RemotePlayer
from nodes.evaluator import Evaluator
from nodes.inference.client import RemotePolicy
from nodes.runtime import lifecycle
from nodes.runtime.options import EvaluationOptions
from tests.nodes.counter import CounterEnvironment


class Inference:
  """Answers with action 1 and keeps what it was asked; after `limit` requests says to stop."""

  def __init__(self, limit=1 << 30):
    self.requests = []
    self.limit = limit

  def __call__(
    self, run, actor_id, incarnation, group, sequence, step_type, reward, discount, observation
  ):
    assert run == 'this run'
    self.requests.append((actor_id, incarnation, group, sequence, step_type, reward, observation))
    return [np.ones(len(step_type), np.int32) if len(self.requests) <= self.limit else None]


@pytest.fixture(autouse=True)
def _run_token(monkeypatch):
  monkeypatch.setenv('LAUNCHPOD_RUN', 'this run')


class Monitor:
  """Says that training has finished after the first evaluation, or another number of reports."""

  def __init__(self, last=1):
    self.last = last
    self.nodes = set()  # That have reported.
    self.evaluations = []
    self.final = []
    self.videos = []

  def video(self, actor_steps, gif):
    self.videos.append((actor_steps, gif))

  def progress(self):
    return {'actor_steps': 100.0, 'finished': len(self.evaluations) >= self.last}

  def report(self, node, values):
    self.nodes.add(node)
    self.evaluations.append(values)

  def final_evaluation(self, node, values):
    self.nodes.add(node)
    self.final.append(values)


def _make(lengths):
  return lambda num_envs, seed: CounterEnvironment(lengths[:num_envs])


def test_an_actor_sends_every_timestep_of_every_group_in_order_in_one_incarnation(answer):
  inference = Inference(limit=40)
  client = answer(inference)
  actor = Actor(_make([3, 5]), client, None, 'actor/4', num_envs=4, env_groups=2, seed=Seed(0))
  actor.run()
  assert {r[0] for r in inference.requests} == {'actor/4'}
  assert len({r[1] for r in inference.requests}) == 1
  for group in (0, 1):
    mine = [r for r in inference.requests if r[2] == group]
    assert [r[3] for r in mine] == list(range(len(mine)))
    counts = np.stack([r[6][:, 0] for r in mine[:9]])
    np.testing.assert_array_equal(counts[:, 0], [0, 1, 2, 3, 0, 1, 2, 3, 0])
    np.testing.assert_array_equal(counts[:, 1], [0, 1, 2, 3, 4, 5, 0, 1, 2])
  again = Actor(_make([3, 5]), client, None, 'actor/4', num_envs=2, env_groups=1, seed=Seed(0))
  inference.limit += 10
  again.run()
  assert len({r[1] for r in inference.requests}) == 2, 'a restart has an incarnation of its own'


def test_a_rejection_is_raised_and_not_retried(answer):
  asked = []

  def refuse(*request):
    asked.append(request)
    return None, 'not this one'

  policy = RemotePolicy(answer(refuse), 'actor/0', 5, 0, lambda: False)
  policy.send(CounterEnvironment([3]).reset())
  with pytest.raises(ValueError, match='not this one'):
    policy.receive()
  assert len(asked) == 1


def test_an_actor_that_was_replaced_fails_and_one_that_is_done_returns(answer):
  replies = iter([(np.ones(2, np.int32),), (None, 'another process acts as actor/0 now.')])
  actor = Actor(
    _make([3, 5]), answer(lambda *request: next(replies)), None, 'actor/0', 2, 1, seed=Seed(0)
  )
  with pytest.raises(ValueError, match='another process acts as actor/0'):
    actor.run()
  replies = iter([(np.ones(2, np.int32),), (None,)])
  actor.run()


def test_an_exhausted_environment_stops_the_program(answer, monkeypatch):
  stopped, closed = [], []
  monkeypatch.setattr(lifecycle, 'stop_program', lambda: stopped.append(True))

  class Ending(CounterEnvironment):
    def step(self, action):
      if self._count.max() == 2:
        raise Exhausted
      return super().step(action)

    def close(self):
      closed.append(True)

  inference = Inference()
  make = lambda num_envs, seed: Ending([5] * num_envs)  # noqa: E731
  Actor(make, answer(inference), None, 'actor/0', num_envs=2, env_groups=1, seed=Seed(0)).run()
  assert stopped == closed == [True]
  assert [r[6].max() for r in inference.requests] == [0, 1, 2]


def test_episode_returns_takes_as_many_episodes_from_each_environment(answer):
  # Environment i pays i for each of its steps.
  policy = RemotePolicy(answer(Inference()), 'evaluator/0', 5, 0, lambda: False)
  environment = CounterEnvironment([2, 3, 40])
  returns = [e.episode_return for e in play_episodes(environment, policy, episodes_each=2)]
  assert sorted(returns) == [0, 0, 3, 3, 80, 80]


def test_an_evaluation_that_is_late_ends_with_a_round_and_counts_no_short_episode_more(answer):
  policy = RemotePolicy(answer(Inference()), 'evaluator/0', 5, 0, lambda: False)
  environment = CounterEnvironment([2, 3, 40])
  played = list(play_episodes(environment, policy, episodes_each=5, is_out_of_time=lambda: True))
  assert len(played) > 3
  assert sorted(e.episode_return for e in complete_rounds(played, 3)) == [0, 3, 80]


def test_an_episode_that_never_ends_counts_with_its_return_so_far_in_the_last_round(answer, caplog):
  policy = RemotePolicy(answer(Inference()), 'evaluator/0', 5, 0, lambda: False)
  environment = CounterEnvironment([2, 3, 10**9])
  played = list(play_episodes(environment, policy, episodes_each=5, max_steps=20))
  assert sorted(e.episode_return for e in complete_rounds(played, 3)) == [0, 3, 40]
  assert max(e.length for e in played) == 20
  assert 'has not ended after --eval_episode_steps=20' in caplog.text
  # What follows a cut is no episode, even if it ends: here 6 of 26 steps, of an evaluation that waits.
  environment = CounterEnvironment([2, 50, 26])
  policy = RemotePolicy(answer(Inference()), 'evaluator/0', 5, 1, lambda: False)
  played = list(play_episodes(environment, policy, episodes_each=5, max_steps=20))
  assert sorted(e.episode_return for e in complete_rounds(played, 3)) == [0, 20, 40]


def test_an_evaluation_steps_on_for_a_video_and_counts_nothing_more(answer):
  policy = RemotePolicy(answer(Inference()), 'evaluator/0', 5, 0, lambda: False)
  environment = CounterEnvironment([2, 3])
  more = iter([True] * 10)
  played = list(play_episodes(environment, policy, 1, goes_on=lambda: next(more, False)))
  assert sorted(e.episode_return for e in played) == [0, 3] and next(more, None) is None


def test_an_evaluator_without_time_plays_one_round(connect, answer):
  inference, monitor = Inference(), Monitor()
  options = evaluation(eval_seconds=1e-9)
  judge((Catch, answer(inference)), connect(monitor), options)
  assert [v['evaluator_episodes'] for v in monitor.evaluations + monitor.final] == [12, 4]


def evaluation(**options):
  """Returns options without limits of time, of 10 episodes in 4 environments."""
  plain = {'eval_envs': 4, 'eval_episodes': 10, 'eval_period': 1000}
  return EvaluationOptions(**plain | {'eval_share': 1.0, 'eval_seconds': 0.0} | options)


def judge(arguments, monitor, options, make_player=RemotePlayer):
  """Runs an evaluator to its end."""
  Evaluator(make_player, arguments, monitor, 'judge/0', options, Seed(3)).run()


class Training(Monitor):
  """Training does 50 actor steps between two questions for its progress, and finishes above 400."""

  def __init__(self):
    super().__init__()
    self.steps = 0.0
    self.evaluated_at = []

  def progress(self):
    self.steps += 50.0
    return {'actor_steps': self.steps, 'finished': self.steps > 400}

  def report(self, node, values):
    super().report(node, values)
    self.evaluated_at.append(self.steps)


class Playing:
  """A player of evaluations of one episode, each of which takes 7 seconds of `clock`."""

  record = None

  def __init__(self, clock, name, options, seed):
    self._clock = clock

  def prepare(self, should_stop):
    pass

  def play(self, should_stop, is_out_of_time):
    self._clock[0] += 7.0
    return [1.0], {}

  def close(self):
    pass


@pytest.fixture
def clock(monkeypatch, stop):
  """The time of evaluators, in a list. They ask for progress without a pause."""
  now = [100.0]
  monkeypatch.setattr(evaluator_lib, 'time', types.SimpleNamespace(monotonic=lambda: now[0]))
  monkeypatch.setattr(stop, 'wait', lambda timeout: False)
  return now


def test_an_evaluation_is_due_a_period_of_actor_steps_after_the_one_before(connect, clock):
  training = Training()
  options = evaluation(eval_envs=1, eval_episodes=1, eval_period=150)
  judge((clock,), connect(training), options, Playing)
  assert training.evaluated_at == [50, 200, 350]
  assert len(training.final) == 1


def test_evaluations_go_on_after_a_learner_has_restarted_at_an_earlier_step(connect, clock):
  class Restarted(Training):
    def progress(self):
      if self.steps == 300.0 and len(self.evaluated_at) == 2:
        self.steps = 0.0
      return super().progress()

  training = Restarted()
  options = evaluation(eval_envs=1, eval_episodes=1, eval_period=200)
  judge((clock,), connect(training), options, Playing)
  assert training.evaluated_at == [50, 250, 250]


def test_an_evaluation_that_is_due_waits_for_its_share_of_the_time(connect, clock, monkeypatch):
  training, taken, budgets = Training(), [], []

  def budget(*limits):
    budgets.append(limits)
    return types.SimpleNamespace(
      allows_another=lambda: training.steps >= 150 and not taken,
      begin=lambda final: lambda: False,
      took=taken.append,
    )

  monkeypatch.setattr(evaluator_lib, 'EvaluationBudget', budget)
  options = evaluation(
    eval_envs=1, eval_episodes=1, eval_period=50, eval_share=0.25, eval_seconds=9.0
  )
  judge((clock,), connect(training), options, Playing)
  assert budgets == [(0.25, 9.0)]
  assert training.evaluated_at == [150]
  assert taken == [7.0, 7.0]  # That evaluation, and the final one.
  seconds = [values['evaluator_seconds'] for values in training.evaluations + training.final]
  assert seconds == taken


def test_the_evaluator_ends_with_an_evaluation_of_the_final_parameters(connect, answer):
  inference, monitor = Inference(), Monitor()
  judge((Catch, answer(inference)), connect(monitor), evaluation())
  assert len(monitor.evaluations) == len(monitor.final) == 1
  for values in monitor.evaluations + monitor.final:
    assert values['evaluator_episodes'] == 12
    won = 12 * (1 + values['evaluator_return']) / 2  # An episode returns 1 or -1.
    assert round(won, 3) in range(13)
  assert monitor.nodes == {r[0] for r in inference.requests} == {'judge/0'}
  assert len({r[1] for r in inference.requests}) == 2, 'each evaluation begins with fresh slots'
  first = [r for r in inference.requests if r[3] == 0]
  assert all((r[4] == dm_env.StepType.FIRST).all() for r in first)


def test_an_evaluator_records_one_environment_in_place_of_all_and_the_final_parameters_too(
  connect, answer
):
  inference, monitor = Inference(), Monitor(last=2)  # An evaluation and a video.
  options = evaluation(video_period=1e9, video_frames=7)
  judge((Catch, answer(inference)), connect(monitor), options)
  assert [steps for steps, _ in monitor.videos] == [100, 100]
  assert [set(values) for values in monitor.evaluations[1:]] == [{'video_seconds'}] * 2
  for _, gif in monitor.videos:
    with Image.open(io.BytesIO(gif)) as video:
      assert (video.format, video.n_frames) == ('GIF', 7)
  incarnations = list(dict.fromkeys(r[1] for r in inference.requests))
  assert len(incarnations) == 4, 'each video begins with fresh slots'
  recorded = [r for r in inference.requests if r[1] in (incarnations[1], incarnations[2])]
  assert len(recorded) == 14
  for request in recorded:
    assert request[6].shape == (4, 10, 5)
    assert (request[6] == request[6][0]).all()
  assert all((r[4] == dm_env.StepType.FIRST).all() for r in recorded if r[3] == 0)


def test_a_video_ends_with_its_episode_or_when_it_is_late(answer):
  inference = answer(Inference())
  for is_out_of_time, frames in ((False, 10), (True, 1)):
    gif = record_video(
      inference, 'judge/0', Catch(1, 0), 4, 1000, lambda: False, lambda late=is_out_of_time: late
    )
    with Image.open(io.BytesIO(gif)) as pictures:
      assert pictures.n_frames == frames


def test_a_video_stops_with_the_program(answer):
  with pytest.raises(lifecycle.Stopped):
    never = lambda: False  # noqa: E731
    record_video(answer(Inference(limit=3)), 'judge/0', Catch(1, 0), 4, 1000, never, never)
