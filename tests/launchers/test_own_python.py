"""Groups with an interpreter of their own, before anything starts."""

import functools
import pickle
import subprocess
import sys

import launchpad as lp
import numpy as np
import pytest

from environments import crossing, interpreters
from launchers import binding, own_python
from launchers.placement import Resources
from launchers.ray import machines
from launchers.slurm import allocation
from programs import registry
from programs.parts.launchpad_nodes import Deferred
from tests.launchers import nodes
from tests.programs_under_test import ROOT
from tests.waiting import DEADLINE


def _problems(python, *arguments):
  program = lp.Program('test')
  program.add_node(lp.PyClassNode(nodes.Crasher, *arguments), label='player')
  program.add_node(lp.PyClassNode(Deferred('nodes.actor', 'Actor')), label='actor')
  placement = {'player': Resources(python=str(python)), 'actor': Resources()}
  return [*own_python.problems(program, placement)]


def test_an_interpreter_that_nodes_cannot_use_is_reported_with_what_to_do(tmp_path):
  bare, old = tmp_path / 'bare' / 'bin' / 'python', tmp_path / 'old'
  subprocess.run(
    [sys.executable, '-m', 'venv', '--without-pip', bare.parents[1]], check=True, timeout=DEADLINE
  )
  old.write_text('#!/bin/sh\necho \'{"version": [3, 6]}\'\n')
  old.chmod(0o755)
  (tmp_path / 'text').touch()
  for python, said in {
    tmp_path / 'none': 'does not exist.',
    tmp_path: 'is a directory; name the interpreter in it, such as bin/python.',
    tmp_path / 'text': 'is not executable; name a Python interpreter.',
    '/bin/true': 'does not run as a Python interpreter (exit code 0).',
    old: 'is Python 3.6, and nodes need Python 3.10 or later; make its environment with a newer one.',
    bare: 'has no package absl, which launchers.profiling needs; install it with: uv pip install '
    f'--python {bare} -r {ROOT}/requirements-actor.in.',
  }.items():
    assert _problems(python) == [f"group 'player': {python} {said}"]


def test_what_the_nodes_of_a_group_will_import_must_be_there(other_python):
  module = registry.load('impala')
  config = module.Config().resolve()
  placement = module.placement(config)
  placement |= dict.fromkeys(('actor', 'evaluator'), Resources(python=other_python))
  (problem,) = own_python.problems(module.make_program(config), placement)
  assert problem.startswith(
    f"group 'actor': {other_python} has no package jax, which nodes.impala_actor needs; install it with"
  )


def test_an_older_python_runs_what_plays_an_environment(other_python):
  players = ('nodes.actor', 'nodes.evaluator', 'nodes.evaluation.remote', 'environments.video')
  for module in players:
    own_python.check(other_python, [module], '--actor_python')


def test_bytecode_for_another_python_is_found_before_a_node_runs_it(other_python):
  assert _problems(other_python, np.arange(3), functools.partial(int, '7')) == []
  (problem,) = _problems(other_python, {'reward': [lambda x: x]})
  assert problem.startswith(f"group 'player': {other_python} is Python 3.")
  assert "in node player/0, because argument 0['reward'][0], of type function, is" in problem
  assert problem.endswith('; move it into a module that both can import.')
  same = [sys.executable, {'reward': lambda x: x}]
  assert _problems(*same) == []


def _ray(resources):  # The local launcher runs real processes, see `tests.launchers.contract`.
  code = machines.code_of('run', resources)
  return [code.python], code.variables


def _slurm(resources):
  hosts = allocation.Hosts(['h1'], '1', [])
  words = allocation.node_command(binding.NodeTask('actor', 0, 'payload'), resources, hosts, 'h1')
  begin = max(k for k, word in enumerate(words) if word.startswith(('PYTHON', 'LAUNCHPOD'))) + 1
  return words[begin:], dict(w.split('=', 1) for w in words[words.index('sh') + 4 : begin])


@pytest.mark.parametrize('engine', [_ray, _slurm])
def test_its_process_has_the_users_directories_and_none_of_the_launchers_packages(
  engine, tmp_path, monkeypatch
):
  monkeypatch.syspath_prepend(str(tmp_path))
  for python, expected in (('/opt/python', '/opt/python'), ('', sys.executable)):
    command, variables = engine(Resources(python=python))
    assert command[0] == expected
    path = variables['PYTHONPATH'].split(':')
    foreign = [p for p in path if 'site-packages' in p or p.endswith(f'3.{sys.version_info[1]}')]
    assert str(ROOT) in path and str(tmp_path) in path and bool(foreign) != bool(python)


def test_arrays_are_pickled_by_no_name_of_numpys_internals():
  ours = np.arange(6, dtype=np.float32).reshape(2, 3).T, np.zeros((0, 2), np.int32), np.float64(0.5)
  pickled = crossing.dumps(ours)
  assert b'numpy.core' not in pickled and b'numpy._core' not in pickled
  for before, after in zip(ours, pickle.loads(pickled), strict=True):
    assert type(before) is type(after) and before.dtype == after.dtype
    np.testing.assert_array_equal(before, after)


def test_the_names_of_required_packages_are_those_of_the_requirements(other_python):
  code = (
    f'import importlib\nfor name in {sorted(interpreters.REQUIRED)}: importlib.import_module(name)'
  )
  subprocess.run([other_python, '-c', code], check=True, timeout=DEADLINE)
