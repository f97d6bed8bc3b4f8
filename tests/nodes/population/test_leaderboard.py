"""The leaderboard of a population, without members."""

import errno
import functools
import json
import os
import threading

import numpy as np
import pytest

from agents.seeding import Seed
from nodes.leaderboard import Leaderboard
from nodes.learning import serialisation
from nodes.population.options import BoardOptions, PopulationOptions
from nodes.runtime import activity, lifecycle, rpc
from rundir import files, final_params, lineage
from rundir.saved_params import read
from tests.nodes.population.instant import AXES, serving
from tests.waiting import DEADLINE, wait_until

COUNTS = {'actor_steps': 100, 'environment_frames': 100, 'learner_steps': 5}


def state(number):
  return {'params': {'w': np.full(3, number, np.float32)}, 'values': {}}


def report(board, member, score, number=1, incarnation=7, rate=1e-3, steps=100):
  sent = None if score is None else state(10 * member + number)
  values = {'learning_rate': rate}
  counts = COUNTS | {'actor_steps': steps}
  return board.report(member, incarnation, number, counts, score, values, sent)


def test_the_worst_gets_the_state_of_the_best_and_other_values(tmp_path):
  board = serving(tmp_path, num_members=4, truncation=0.25, resample=0.0)
  for member, score in enumerate((3.0, 1.0, 2.0)):
    event, source, values, copied = report(board, member, score, rate=1e-3 * (member + 1))
    assert (event, source) == (member + 1, 0 if member == 1 else None)
  # Of two, the worse is replaced; of three, one.
  event, source, values, copied = report(board, 3, 0.0, rate=5e-3)
  assert (event, source) == (4, 0) and values['learning_rate'] in (8e-4, 1.2e-3)
  np.testing.assert_array_equal(copied['params']['w'], [1.0] * 3)
  event, source, values, copied = report(board, 0, 4.0, number=2)
  assert (event, source, values, copied) == (5, None, {'learning_rate': 1e-3}, None)

  events = lineage.read(str(tmp_path))
  assert [e.member for e in events] == [0, 1, 2, 3, 0]
  assert (events[3].source, events[3].source_member, events[3].score) == (1, 0, 0.0)
  assert events[3].values == {'learning_rate': 5e-3}
  assert events[3].next_values['learning_rate'] in (8e-4, 1.2e-3)
  assert events[4].counts == COUNTS and events[4].next_values == events[4].values


@pytest.mark.parametrize('selection', ['truncation', 'tournament', 'none'])
def test_equal_reports_give_equal_events_and_none_only_ranks(tmp_path, selection):
  runs = []
  for name in 'ab':
    board = serving(tmp_path / name, num_members=8, selection=selection)
    scores = np.random.default_rng(0).normal(size=(5, 8))
    for number, row in enumerate(scores):
      for member, score in enumerate(row):
        report(board, member, float(score), number + 1, rate=1e-3)
    runs.append([e._replace(time=0.0) for e in lineage.read(str(tmp_path / name))])
  assert runs[0] == runs[1] and len(runs[0]) == 40
  copies = sum(event.source is not None for event in runs[0])
  assert copies == 0 if selection == 'none' else copies >= 5


def test_the_parameters_of_the_best_are_those_of_the_run(tmp_path):
  board = serving(tmp_path)
  for member, score, number, best in ((0, 1.0, 1, 1), (1, 2.0, 1, 11), (1, 0.5, 2, 1)):
    report(board, member, score, number)
    counts, params = board.get_params()
    assert counts == COUNTS and params['w'][0] == best
    saved = serialisation.params(read(str(tmp_path)), {'w': np.zeros(3, np.float32)})
    assert saved['w'][0] == best
  # Those that nobody can copy any more are gone.
  assert len(list((tmp_path / 'leaderboard').iterdir())) == 2


def test_a_report_that_comes_again_has_the_same_reply_also_after_a_restart(tmp_path):
  board = serving(tmp_path, resample=1.0)
  report(board, 0, 1.0)
  first = report(board, 1, 0.0)
  for again in (board, serving(tmp_path, resample=1.0)):
    event, source, values, copied = report(again, 1, 0.0)
    assert (event, source, values) == first[:3]
    np.testing.assert_array_equal(copied['params']['w'], first[3]['params']['w'])
  assert len(lineage.read(str(tmp_path))) == 2
  # Another incarnation begins to count at 1 again.
  assert report(again, 1, 0.0, incarnation=8)[0] == 3


def test_without_room_a_report_is_decided_once_and_answered_once_its_parameters_are_on_disk(
  tmp_path, monkeypatch
):
  board = serving(tmp_path, num_members=2)
  report(board, 0, 1.0)
  save = final_params.save

  def full(*args):
    raise OSError(errno.ENOSPC, 'no room')

  monkeypatch.setattr(final_params, 'save', full)
  for _ in range(2):
    with pytest.raises(RuntimeError) as refused:
      report(board, 1, 2.0)
    assert rpc.is_transient(refused.value)
  assert board.get_params()[1]['w'][0] == 1.0  # The evaluator sees what is on disk.
  monkeypatch.setattr(final_params, 'save', save)
  assert report(board, 1, 2.0)[0] == 2
  assert [event.member for event in lineage.read(str(tmp_path))] == [0, 1]
  assert board.get_params()[1]['w'][0] == 11.0
  assert len(os.listdir(tmp_path / 'leaderboard')) == 2


def test_a_pod_whose_sibling_reported_before_the_disk_was_full_waits_for_its_next_report(
  tmp_path, monkeypatch
):
  board = serving(tmp_path, num_members=4, num_pods=2)
  with monkeypatch.context() as without_room:
    without_room.setattr(final_params, 'save', lambda *args: os.stat(tmp_path / 'missing'))
    assert report(board, 0, 1.0) is None
    with pytest.raises(RuntimeError):
      report(board, 1, 1.0)
  assert report(board, 0, 5.0, number=2) is None


def test_a_leaderboard_that_was_killed_while_it_wrote_continues_with_the_ranks(tmp_path):
  board = serving(tmp_path)
  for member in range(3):
    report(board, member, float(member))
  with open(lineage.path(str(tmp_path)), 'a') as file:
    file.write(json.dumps({'event': 4, 'member': 2})[:-5])
  (tmp_path / 'leaderboard' / '4.msgpack').write_bytes(b'unfinished')
  again = serving(tmp_path)
  assert again._board.scores == {0: 0.0, 1: 1.0, 2: 2.0}
  assert report(again, 0, 0.5, number=2)[:2] == (4, 2)
  assert again.get_params()[1]['w'][0] == 21


def test_what_a_member_ends_with_has_tried_values_and_a_score_of_its_own(tmp_path):
  board = serving(tmp_path, num_members=2, num_steps=2000, ready_steps=50, resample=0.0)
  report(board, 0, 9.0, rate=5e-3, steps=700)
  # Four fifths are explored; what is copied after them keeps its values.
  assert report(board, 1, 0.0, steps=800)[1:3] != (0, {'learning_rate': 5e-3})
  assert report(board, 1, 0.0, number=2, steps=801)[1:3] == (0, {'learning_rate': 5e-3})
  # In the last interval nobody copies, unless it has diverged.
  assert report(board, 1, 0.0, number=3, steps=950)[1] == 0
  assert report(board, 1, 0.0, number=4, steps=951)[1] is None
  assert report(board, 1, None, number=5, steps=952)[1] == 0
  report(board, 1, 1.0, number=6, steps=1000)
  assert board._board.scores == {0: 9.0, 1: 1.0}


def test_pods_are_ranked_by_their_mean_score_and_continue_with_their_mean(tmp_path):
  make = functools.partial(serving, tmp_path, num_members=4, num_pods=2, resample=0.0)
  board = make()
  assert report(board, 0, 1.0) is None and report(board, 2, 9.0) is None
  event, source, values, fused = report(board, 1, 3.0)
  assert (event, source, values) == (2, None, {'learning_rate': 1e-3})
  np.testing.assert_array_equal(fused['params']['w'], [6.0] * 3)  # Of 1 and 11.
  assert report(board, 0, 1.0)[:2] == (1, None), 'a sibling asks again'
  # 9 is the highest score, but the mean of its agent is the lowest.
  event, source, values, copied = report(board, 3, -9.0)
  assert (event, source) == (4, 0) and values['learning_rate'] in (8e-4, 1.2e-3)
  np.testing.assert_array_equal(copied['params']['w'], [6.0] * 3)
  assert report(board, 2, 9.0)[1:3] == (source, values), 'pods have equal values'
  assert board._board.scores == {0: 2.0, 1: 0.0}
  assert board.get_params()[1]['w'][0] == 6.0

  # One that is down holds nobody up; a newer report takes the place of an undecided one.
  assert report(board, 0, 5.0, number=2) is None and report(board, 0, 7.0, number=2) is None
  again = make()
  assert again._board.scores == {0: 2.0, 1: 0.0}
  assert report(again, 0, 7.0, number=2) is None
  assert report(again, 1, None, number=2)[:2] == (6, None)
  assert again._board.scores == {0: 7.0, 1: 0.0}, 'one pod has diverged'
  np.testing.assert_array_equal(again.get_params()[1]['w'], [2.0] * 3)
  assert len(list((tmp_path / 'leaderboard').iterdir())) == 2


def test_an_evaluator_that_acts_itself_fetches_the_best(tmp_path):
  board = serving(tmp_path)
  report(board, 0, 1.0)
  report(board, 1, 2.0, steps=50)
  version, params, counts = board.get_variables(['policy_version', 'params', 'counts'])
  assert version == 2 and params['w'][0] == 11.0
  assert counts == {'actor_steps': 150, 'environment_frames': 200, 'learner_steps': 10}


def test_members_that_have_diverged_have_no_state_and_get_one(tmp_path):
  board = serving(tmp_path)
  # Nobody is better yet, so only other values can help.
  _, source, values, copied = report(board, 0, None)
  assert (source, copied) == (None, None) and values['learning_rate'] != 1e-3
  assert not os.path.exists(final_params.path(str(tmp_path)))
  report(board, 1, -5.0)
  assert report(board, 0, None, number=2)[1] == 1
  assert report(board, 1, None, number=2)[1] is None, 'a diverged member is copied'
  assert lineage.read(str(tmp_path))[0].score is None


def test_the_parameters_of_the_run_stay_while_nobody_has_a_score(tmp_path):
  board = serving(tmp_path, num_members=1)
  report(board, 0, 1.0)
  report(board, 0, None, number=2)
  assert board.get_params()[1]['w'][0] == 1.0


def test_without_a_score_at_the_end_the_run_has_the_parameters_of_the_first(tmp_path):
  board = serving(tmp_path, num_members=3)
  for member in (2, 1, 0):
    board.finished(member, COUNTS, None if member == 0 else state(member)['params'])
  counts, params = board.get_params()
  assert counts == COUNTS and params['w'][0] == 1.0
  version, counts = board.get_variables(['policy_version', 'counts'])
  assert version == 0 and counts == COUNTS
  saved = serialisation.params(read(str(tmp_path)), {'w': np.zeros(3, np.float32)})
  assert saved['w'][0] == 1.0


def test_a_leaderboard_that_waits_for_the_disk_has_no_deadline(tmp_path, monkeypatch):
  board = serving(tmp_path, num_members=1)
  activity.mark(activity.SERVING)
  writes, seen = threading.Event(), threading.Event()

  def write(path, content):
    writes.set()
    assert seen.wait(DEADLINE)

  monkeypatch.setattr(files, 'write', write)
  member = threading.Thread(target=report, args=(board, 0, 1.0), daemon=True)
  member.start()
  assert writes.wait(DEADLINE)
  measuring = threading.Thread(target=board._measure, args=(1.0,), daemon=True)
  measuring.start()
  wait_until(lambda: activity.latest().activity == activity.WRITING_CHECKPOINT)
  seen.set()
  for thread in (member, measuring):
    thread.join(DEADLINE)
  assert activity.latest().activity == activity.SERVING


def test_a_population_whose_members_have_all_diverged_ends_with_a_sentence(tmp_path):
  node = Leaderboard(
    BoardOptions(PopulationOptions(num_members=1), AXES, 10**9, Seed(1), str(tmp_path)), None
  )
  ended = []

  def run():
    with pytest.raises(lifecycle.NonRetryableError, match='no member of the population has finite'):
      node.run()
    ended.append(True)

  thread = threading.Thread(target=run, daemon=True)
  thread.start()
  node.finished(0, COUNTS, None)
  thread.join(DEADLINE)
  assert ended


def test_it_serves_members_and_the_evaluator_until_the_program_stops(tmp_path, connect, stop):
  options = BoardOptions(PopulationOptions(), AXES, 10**9, Seed(1), str(tmp_path))
  node = Leaderboard(options, None)
  thread = threading.Thread(target=node.run, daemon=True)
  client = connect(node)
  params = client.futures.get_params()
  thread.start()
  assert client.report(0, 2**61, 1, COUNTS, 1.5, {'learning_rate': 1e-3}, state(3))[:2] == (1, None)
  assert params.result(timeout=DEADLINE)[1]['w'][0] == 3
  wait_until(lambda: node._measure(1.0).get('best_score') == 1.5)
  stop.set()
  thread.join(DEADLINE)
  assert not thread.is_alive()
