"""Graphs whose actors are threads of the processes that infer for them."""

import pytest

from agents.options import make as make_config
from launchers.graph import describe, flow
from programs import registry
from tests.programs_under_test import run_main

GRAPHS = [
  ('sebulba', {}, 'inference_learner'),
  ('sebulba', {'num_replicas': 2}, 'inference_learner'),
  ('sebulba', {'num_actors': 4, 'inference_nodes': 2}, 'inference'),
  ('r2d2', {}, 'inference_learner'),
  ('muzero', {'reanalyse_nodes': 1, 'reanalyse_share': 0.5}, 'inference_learner'),
  ('sac', {}, 'inference_learner'),
  ('qt_opt', {'batch_size': 8}, 'inference_learner'),
  ('gala_sebulba', {'num_peers': 2, 'num_actors': 2}, 'inference_learner'),
  ('population_sebulba', {'num_members': 2, 'num_actors': 2}, 'member'),
]


def graph_of(name, **options):
  """Returns the graph of a program, its placement, and its nodes by group."""
  module = registry.load(name)
  config = make_config(module.Config, env_groups=2, **options).resolve()
  program, placement = module.make_program(config), module.placement(config)
  assert placement.keys() == program.groups.keys()
  return flow.graph(program, placement), placement, program.groups


@pytest.mark.parametrize('name, options, group', GRAPHS)
def test_servers_have_the_actors_that_would_be_processes_with_their_seeds(name, options, group):
  processes, placed_apart, nodes = graph_of(name, **options)
  threads, placed, servers = graph_of(name, actors_as_threads=True, **options)
  # An actor is (number of environments, groups, seed), by its name; its server is the one that it calls.
  inference = [node.create_handle() for node in nodes[group]]
  apart = [{} for _ in nodes[group]]
  for node in nodes['actor']:
    _, server, _, actor_id, *rest = node._args
    apart[inference.index(server)][actor_id] = rest
  found = [
    {each.actor_id: [*each[2:]] for each in _serving(node).actors} for node in servers[group]
  ]
  assert found == apart and all(found)
  assert [_serving(node).env_groups for node in servers[group]] == [
    _serving(node).env_groups for node in nodes[group]
  ]

  assert 'actor' not in servers and processes.roles('actor') == ('actor',)
  assert threads.roles(group) == ('actor', *processes.roles(group))
  assert placed[group].cpus == placed_apart[group].cpus + len(apart[0])
  number = f'{len(apart[0])} ' if len(apart[0]) > 1 else ''
  assert describe.what_runs(servers[group][0]).endswith(f' + {number}ActorThread')


def _serving(node):
  found = [x for x in (*node._args, *node._kwargs.values()) if type(x).__name__ == 'Serving']
  return found[0]


def test_an_interpreter_of_their_own_is_refused_in_one_sentence(capsys):
  flags = '--actors_as_threads', '--actor_python=/usr/bin/python3', '--dry_run'
  assert run_main('--env=catch', *flags) == 2
  error = capsys.readouterr().err
  assert error.count('\n') == 1
  assert '--actor_python=/usr/bin/python3' in error and '--actors_as_threads' in error


def test_a_dry_run_shows_what_runs(capsys):
  assert run_main('--env=catch', '--actors_as_threads', '--num_actors=3', '--dry_run') == 0
  printed = capsys.readouterr().out
  assert '1 x ListeningNode(LearnerNode + 3 ActorThread)  on a CPU worker, cpus: 4' in printed
  assert ' x PyClassNode(Actor)' not in printed
