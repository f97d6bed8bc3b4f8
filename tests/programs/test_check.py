"""What `programs.check` says about a small graph with one mistake."""

import threading

import launchpad as lp
import pytest
from launchpad.nodes.multi_processing_colocation.node import MultiProcessingColocation

from agents.options import make
from launchers.graph import describe
from launchers.placement import Resources
from nodes.unrolls.tables import queue_table
from programs import check, registry
from programs.parts.launchpad_nodes import ReplayNode


class Server:
  """Can be given anything."""

  def __init__(self, *clients, lock=None):
    del clients, lock


def _everywhere(program):
  return {label: Resources() for label in program.groups}


def _problems(program, placement=None, **options):
  where = _everywhere(program) if placement is None else placement
  with pytest.raises(ValueError) as error:
    check.check(program, where, **options)
  return str(error.value).split('\nerror: ')


def _circle(*labels):
  """Returns a program in which each calls the next and the last the first."""
  program, servers = lp.Program('test'), [lp.CourierNode(Server) for _ in labels]
  handles = [server.create_handle() for server in servers]
  for i, (label, server) in enumerate(zip(labels, servers, strict=True)):
    server.configure(handles[(i + 1) % len(labels)])
    program.add_node(server, label=label)
  return program


def _replay():
  return ReplayNode(queue_table(4), None, 'replay/0', '/nothing', 0.0)


@pytest.mark.parametrize(
  'name, options',
  [
    ('sebulba', {'num_replicas': 2, 'num_replay_shards': 2, 'eval_envs': 0}),
    ('sebulba', {'num_actors': 4, 'inference_nodes': 2}),
    ('r2d2', {'num_actors': 3, 'inference_nodes': 3}),
    ('muzero', {'reanalyse_nodes': 2, 'reanalyse_share': 0.5, 'num_replicas': 2}),
    ('muzero', {'reanalyse_nodes': 1, 'reanalyse_share': 0.5, 'inference_nodes': 1}),
    ('anakin', {'num_replicas': 2}),
    *((name, {}) for name in registry.PROGRAMS),
  ],
)
def test_our_own_programs_pass(name, options):
  module = registry.load(name)
  config = make(module.Config, **options).resolve()
  cycles = getattr(module, 'CYCLES', ())
  check.check(module.make_program(config), module.placement(config), cycles=cycles)


def test_a_handle_on_itself_is_named():
  (problem,) = _problems(_circle('echo'))
  assert 'node echo/0 is given a handle on itself' in problem


def test_a_cycle_of_calls_is_named_once_and_can_be_allowed():
  program = _circle('a', 'b', 'c')
  (problem,) = _problems(program)
  assert 'a/0 -> b/0 -> c/0 -> a/0' in problem
  assert "CYCLES = [['a', 'b', 'c']]" in problem
  assert _problems(program, cycles=[{'a', 'b'}]) == [problem]
  check.check(program, _everywhere(program), cycles=[{'a', 'b', 'c', 'd'}])


def test_two_paths_to_one_server_are_no_cycle():
  program = lp.Program('test')
  top = program.add_node(lp.CourierNode(Server), label='top')
  middle = [program.add_node(lp.CourierNode(Server, top), label=f'm{i}') for i in range(2)]
  program.add_node(lp.PyClassNode(Server, middle, top), label='bottom')
  check.check(program, _everywhere(program))


def test_what_cannot_be_pickled_is_named_unless_nodes_are_threads():
  program = lp.Program('test')
  with program.group('locked'):
    for _ in range(2):
      program.add_node(lp.PyClassNode(Server, lock={'its': threading.Lock()}))
  (problem,) = _problems(program)
  assert 'node locked/0' in problem and "argument 'lock'['its'], of type lock" in problem
  check.check(program, _everywhere(program), pickled=False)


def test_a_group_without_placement_is_named_and_so_is_a_placement_without_a_group():
  program = lp.Program('test')
  program.add_node(lp.CourierNode(Server), label='histogram')
  (problem,) = _problems(program, {'histogramm': Resources()})
  assert "group 'histogram' has no placement" in problem
  assert "'histogramm', which is not a group" in problem


def test_a_table_without_writers_or_readers_is_named():
  program = lp.Program('test')
  used = program.add_node(_replay(), label='used')
  program.add_node(_replay(), label='forgotten')
  program.add_node(lp.PyClassNode(Server, used), label='reader')
  (problem,) = _problems(program)
  assert 'no node writes to forgotten/0 or reads from it' in problem


def test_a_handle_on_a_node_that_was_never_added_is_named():
  program = lp.Program('test')
  forgotten = lp.CourierNode(Server)
  program.add_node(lp.PyClassNode(Server, forgotten.create_handle()), label='caller')
  (problem,) = _problems(program)
  assert 'node caller/0 has a handle on a node that was not added' in problem


def test_a_colocation_is_one_node_to_which_its_handles_belong():
  program, inner = lp.Program('test'), lp.CourierNode(Server)
  neighbour = lp.PyClassNode(Server, inner.create_handle())
  program.add_node(lp.MultiThreadingColocation([inner, neighbour]), label='pair')
  program.add_node(lp.PyNode(print, inner.create_handle()), label='reader')
  check.check(program, _everywhere(program))
  assert describe.edges(program) == {('reader', 'pair'): 1}
  text = describe.describe(program, _everywhere(program))
  assert 'pair      1 x MultiThreadingColocation(2 Server)  on' in text
  assert 'reader    1 x PyNode(print)  on' in text


def test_what_cannot_be_pickled_in_a_colocation_is_named():
  program = lp.Program('test')
  inner = lp.PyClassNode(Server, lock=threading.Lock())
  program.add_node(lp.MultiThreadingColocation([inner]), label='pair')
  program.add_node(lp.PyNode(print, threading.Lock()), label='function')
  first, second = _problems(program)
  assert 'node pair/0 cannot be sent to a separate process, because in its PyClassNode' in first
  assert "argument 'lock', of type lock, cannot be pickled" in first
  assert 'because argument 0, of type lock, cannot be pickled' in second


def test_a_type_of_node_that_launchpad_ships_incomplete_is_rejected():
  program = lp.Program('test')
  program.add_node(MultiProcessingColocation([lp.PyNode(print)]), label='processes')
  (problem,) = _problems(program)
  assert problem.startswith('node processes/0 is a MultiProcessingColocation, which')
  assert 'use lp.MultiThreadingColocation' in problem


def test_your_own_program_may_have_cycles():
  program = _circle('a', 'b')
  check.check(program, _everywhere(program), cycles=None)


def test_names_with_line_breaks_or_unfit_for_files_are_rejected():
  program = lp.Program('two\nlines')
  for label in ('a\tb', 'a/b', 'a b'):
    program.add_node(lp.CourierNode(Server), label=label)
  problems = _problems(program)
  assert [repr(name) in p for name, p in zip(('two\nlines', 'a\tb', 'a/b'), problems, strict=True)]


def test_all_errors_are_reported_at_once():
  program = _circle('echo')
  program.add_node(_replay(), label='replay')
  problems = _problems(program, {'echo': Resources()})
  assert [p.split()[:2] for p in problems] == [
    ['group', "'replay'"],
    ['node', 'echo/0'],
    ['no', 'node'],
  ]
