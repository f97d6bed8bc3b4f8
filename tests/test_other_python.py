"""Environments that only another Python of this machine can import."""

import json
import os

import numpy as np
import pytest

import evaluate
from environments import base, registry
from environments.elsewhere import Elsewhere
from tests.launchers.contract import runs
from tests.programs_under_test import DONE, ROOT, SMALL, log_text, run_main

CART_POLE = f'{ROOT}/examples/from_gym.py:make:CartPole-v1'


@pytest.mark.nightly  # The engines' contract runs a node, and the test below an environment, elsewhere.
def test_a_program_trains_and_is_evaluated_where_only_another_python_has_the_environment(
  train, other_python, tmp_path, capsys
):
  with pytest.raises(
    ValueError, match="importing it raised ModuleNotFoundError: No module named 'gym'"
  ):
    registry.check(CART_POLE)
  relative = os.path.relpath(other_python, ROOT)
  options = f'--env={CART_POLE}', f'--actor_python={relative}', '--eval_envs=2', '--eval_episodes=2'
  process = train(*SMALL, *options, '--torso=mlp', f'--run_dir={tmp_path}/run')
  assert process.returncode == 0, process.stderr
  assert float(DONE.fullmatch(process.stdout.splitlines()[-1])[1]) > 0
  assert 'Traceback' not in log_text(tmp_path / 'run')
  json_file = tmp_path / 'score.json'
  assert evaluate.main([str(tmp_path / 'run'), '--episodes=2', f'--json={json_file}']) == 0, (
    capsys.readouterr()
  )
  assert json.loads(json_file.read_text())['score']['mean'] >= 5


def test_environments_elsewhere_are_those_of_the_same_seed_here(other_python):
  here, there = (
    registry.make('catch', 2, 3, 'rows=4'),
    Elsewhere(other_python, 'catch', 2, 3, 'rows=4'),
  )
  assert (there.num_envs, there.action_repeat) == (2, 1) and there.spec() == here.spec()
  described = registry.describer('catch', 'rows=4', other_python)
  assert base.describe(described) == (here.spec(), 1)
  actions = np.random.default_rng(0).integers(3, size=(9, 2)).astype(np.int32)
  rows = [[e.reset(), *map(e.step, actions)] for e in (here, there)]
  for ours, theirs in zip(*rows, strict=True):
    for one, other in zip(ours, theirs, strict=True):
      assert one.dtype == other.dtype
      np.testing.assert_array_equal(one, other)
  with pytest.raises(RuntimeError, match='Traceback'):
    there.step('left')
  pid = there._process.pid
  there.close()
  assert not runs(pid)
  with pytest.raises(ValueError, match='catch has no such option'):
    Elsewhere(other_python, 'catch', 2, 3, 'speed=4')


@pytest.mark.parametrize(
  'flags, words',
  [
    (['--lp_launch_type=local_mt'], ['--lp_launch_type=local_mt runs', 'use local_mp']),
    (
      ['--launcher=k8s', '--image=a', '--output=b'],
      ['on Kubernetes and under SkyPilot every node', '--image'],
    ),
    (['--program=impala'], ['--actor_python is not an option of this program']),
  ],
)
def test_what_cannot_have_actors_with_another_python_says_so(other_python, flags, words, capsys):
  assert run_main(f'--actor_python={other_python}', '--dry_run', *flags) == 2
  error = capsys.readouterr().err
  assert error.startswith('error: ') and error.count('\n') == 1
  for word in words:
    assert word in error


def test_an_interpreter_that_cannot_play_is_named_with_its_flag(tmp_path, capsys):
  assert run_main(f'--actor_python={tmp_path}', '--dry_run') == 2
  assert f'--actor_python: {tmp_path} is a directory' in capsys.readouterr().err
