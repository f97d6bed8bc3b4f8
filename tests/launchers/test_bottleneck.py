import math
import pathlib

import pytest

from launchers import bottleneck
from launchers.bottleneck import Utilization
from launchers.recent import Recent
from tests.graphs import graph
from viewing.progress import Progress

RECORDED = pathlib.Path(__file__).parent.parent / 'viewing' / 'recorded'
APART = graph(player=['actor'], inference=['inference'], learner=['learner'], judge=['evaluator'])
STARVED = {'learner_waiting': 0.7, 'stepping': 0.1, 'waiting': 0.9, 'batch_fill': 1.0}


@pytest.mark.parametrize(
  'name, found, words, fix',
  [
    ('slow_environment', 'environments', 'the environments are the bottleneck', '--num_actors'),
    ('slow_learner', 'learner', 'replay holds the actors back', '--samples_per_insert'),
    ('starved_inference', 'inference', 'inference is the bottleneck', '--envs_per_actor'),
  ],
)
def test_the_bottleneck_of_a_run_that_was_made_slow_on_purpose_is_named(name, found, words, fix):
  """`recorded/README.md` has the commands that recorded these runs."""
  verdict = Progress(str(RECORDED / name), with_curves=False).status['verdict']
  assert verdict.bottleneck == found
  assert words in verdict.sentence and fix in verdict.sentence


@pytest.mark.parametrize(
  'figures, found, words',
  [
    (Utilization(), 'unknown', 'nothing has been measured'),
    (
      Utilization(learner_waiting=0.02, replay_fill=0.97),
      'learner',
      'replay is full and the learner never waits: the learner is the bottleneck; a larger '
      '--batch_size or more --learner_devices would help',
    ),
    # A prioritized replay is full as a rule, so its fill says nothing.
    (
      Utilization(learner_waiting=0.02, replay_fill=1.0, is_queue=False),
      'learner',
      'barely keeps up',
    ),
    (Utilization(learner_waiting=0.02, held_back=0.5), 'learner', 'holds the actors back'),
    (Utilization(learner_waiting=0.02, inference_busy=0.9), 'none', 'balanced'),
    (Utilization(learner_waiting=0.2), 'none', 'nothing stands out'),
    (Utilization(replay_fill=0.01, first_fill=0.05, is_queue=False), 'replay', 'filling'),
    (Utilization(learner_waiting=0.7, stepping=0.9, waiting=0.1), 'environments', '--num_actors'),
    (Utilization(learner_waiting=0.7, only_recorded=True), 'replay', 'for recorded transitions'),
    (Utilization(**STARVED, inference_busy=0.9), 'inference', '--inference_nodes'),
    (
      Utilization(**STARVED | {'stepping': 0.1}, inference_busy=0.9, env_groups=2),
      'inference',
      '--env_groups=1',
    ),
    (
      Utilization(**STARVED | {'batch_fill': 0.2}, inference_busy=0.9),
      'batching',
      '--inference_timeout_ms',
    ),
    (
      Utilization(**STARVED, inference_busy=0.1),
      'batching',
      'more --num_actors, --env_groups=2 or',
    ),
    (Utilization(**STARVED, inference_busy=0.1, env_groups=2), 'batching', 'more --num_actors or'),
    (Utilization(**STARVED, env_groups=0), 'inference', "the actors' inference"),
    (Utilization(learner_waiting=0.7, stepping=0.4, waiting=0.5), 'actors', '--num_actors'),
  ],
)
def test_each_rule_has_a_verdict(figures, found, words):
  verdict = bottleneck.verdict(figures)
  assert verdict.bottleneck == found and words in verdict.sentence
  assert bool(verdict.rule) == (found != 'unknown')


@pytest.mark.parametrize(
  'waiting, stepping, found, words',
  [
    (math.nan, math.nan, 'unknown', 'nothing has been measured'),
    (0.1, 0.9, 'learner', '--num_pairs'),
    (0.9, 0.9, 'environments', '--num_workers'),
    (0.9, 0.3, 'actors', '--virtual_workers'),
  ],
)
def test_workers_of_a_generation_wait_for_the_last_of_them(waiting, stepping, found, words):
  means = {'chief/0': {'repeated_parts': 0.0}, 'hand/0': {'stepping_share': stepping}}
  if math.isfinite(waiting):
    means['chief/0']['learner_waiting_share'] = waiting
  roles = graph(chief=['learner'], hand=['actor', 'inference'])
  verdict = bottleneck.of_program(means, {}, roles)
  assert verdict.bottleneck == found and words in verdict.sentence


def test_a_program_that_takes_every_core_is_told_that_only_more_cores_help():
  crowded = Utilization(learner_waiting=0.02, cores_used=1.95, cores=2.0)
  assert 'all 2 cores are busy' in bottleneck.verdict(crowded).sentence
  alone = Utilization(learner_waiting=0.02, cores_used=1.0, cores=2.0)
  assert 'cores are busy' not in bottleneck.verdict(alone).sentence


@pytest.mark.parametrize(
  'used, idle, others',
  [(0.2, 0.0, '1.8'), (0.2, 0.1, '1.7'), (0.2, 1.0, ''), (1.9, 0.0, ''), (math.nan, 0.0, '')],
)
def test_a_machine_that_other_processes_fill_is_told_so_and_not_to_take_more_actors(
  used, idle, others
):
  machine = {'cores_used': used, 'cores': 2.0, 'cores_idle': idle}
  starved = bottleneck.verdict(Utilization(**STARVED, **machine))
  fed = bottleneck.verdict(Utilization(learner_waiting=0.02, **machine))
  both = graph(trainer=['actor', 'learner'])
  loop = bottleneck.of_program({'trainer/0': {}}, {'cpu_cores': 2}, both, used, idle)
  said = f'other processes use {others} of the 2 cores'
  for found in (starved, fed, loop):
    assert (said in found.sentence) if others else ('other processes' not in found.sentence)
  assert (starved.bottleneck == 'machine') == bool(others)
  assert ('--num_actors' in starved.sentence) == (not others)


def test_figures_are_shares_of_the_whole_program():
  means = {
    'player/0': {'stepping_share': 0.2, 'waiting_share': 0.8},
    'player/1': {'stepping_share': 0.4, 'waiting_share': 0.6},
    'judge/0': {'stepping_share': 1.0},
    'inference/0': {'inference_busy_share': 0.5, 'deferred_requests': 1.0},
    'inference/1': {'inference_busy_share': 0.7, 'deferred_requests': 2.0},
    'learner/0': {'learner_waiting_share': 0.1, 'replay_size': 24.0},
  }
  config = {'num_actors': 2, 'env_groups': 2, 'queue_size': 32, 'cpu_cores': 8}
  figures = bottleneck.utilization(means, config, APART)
  assert figures.stepping == pytest.approx(0.3) and figures.inference_busy == pytest.approx(0.6)
  assert figures.held_back == 0.75 and figures.replay_fill == 0.75
  assert figures.is_queue and not figures.acts_itself and figures.env_groups == 2
  assert math.isnan(figures.batch_fill)


def test_a_node_whose_threads_are_actors_is_judged_like_actors_apart():
  means = {'all/0': {'learner_waiting_share': 0.7, 'inference_busy_share': 0.2}}
  means['all/0'] |= {'stepping_share': 0.8, 'waiting_share': 0.2}
  config = {'num_actors': 2, 'env_groups': 2}
  found = bottleneck.of_program(means, config, graph(all=['actor', 'inference', 'learner']))
  assert found.bottleneck == 'environments'
  compiled = bottleneck.of_program(means, config, graph(all=['actor', 'learner']))
  assert compiled.bottleneck == 'learner' and 'one compiled function' in compiled.sentence


def test_figures_of_replicas_are_shares_of_all_of_them():
  means = {
    'inference/0': {'inference_busy_share': 0.5, 'deferred_requests': 1.0},
    'inference/1': {'inference_busy_share': 0.7, 'deferred_requests': 2.0},
    'learner/0': {'learner_waiting_share': 0.1, 'replay_size': 20.0},
    'learner/1': {'learner_waiting_share': 0.3, 'replay_size': 30.0},
  }
  config = {'num_actors': 2, 'env_groups': 2, 'num_replicas': 2}
  config |= {'replay_size': 100, 'min_replay_size': 5}
  figures = bottleneck.utilization(means, config, APART)
  assert figures.learner_waiting == pytest.approx(0.2) and figures.held_back == 0.375
  assert figures.replay_capacity == 200 and figures.replay_fill == 0.25
  assert figures.first_fill == 0.05 and not figures.is_queue


def test_means_cover_the_last_minute_and_ignore_what_is_no_number():
  recent = Recent()
  for second in range(200):
    values = {'old': 1.0} if second < 100 else {'share': second % 2, 'bad': math.nan}
    recent.add(float(second), values | {'count': 10.0 * second})
  means = recent.means()
  assert means['share'] == pytest.approx(0.5, abs=0.02)
  assert 'old' not in means and 'bad' not in means
  assert recent.rate('count') == pytest.approx(10.0) and math.isnan(recent.rate('old'))
  recent.add(150.0, {'share': 100.0})  # Late, or a second reader of the same report.
  assert recent.means() == means
