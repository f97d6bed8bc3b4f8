"""Environments of a run, of its restarted nodes and of its resumed run share no random numbers."""

import json

import pytest

# Catch that tells its seed and the actions of its first steps, and fails once in an actor.
CATCH = """
import json, os, pathlib
from environments.catch import Catch

HERE = pathlib.Path(__file__).parent

class Told(Catch):
  def __init__(self, num_envs, seed):
    super().__init__(num_envs, seed)
    self._seed, self._actions = seed, []

  def step(self, action):
    self._actions.append(action.tolist())
    if len(self._actions) == 40:
      partial = HERE / f'{os.getpid()}-{id(self)}'
      partial.write_text(json.dumps([self._seed, self._actions]))
      partial.rename(partial.with_suffix('.json'))
      if self.num_envs == 2:  # An actor's.
        try:
          (HERE / 'failed').touch(exist_ok=False)
        except FileExistsError:
          pass
        else:
          raise RuntimeError('once')
    return super().step(action)

def make(task, num_envs, seed):
  return Told(num_envs, seed)
"""
# Actors are random: nothing is learned.
FLAGS = (
  *('--num_actors=2', '--learning_rate=1e-9', '--eval_envs=3', '--num_steps=1000000000'),
  '--checkpoint_period=1',
)
PROGRAMS = {
  # Two peers of two actors, each with two groups of two environments.
  'gala_sebulba': (8, ('--num_peers=2', '--envs_per_actor=4', '--env_groups=2')),
  # Two members of two actors.
  'population_sebulba': (4, ('--num_members=2', '--envs_per_actor=2', '--env_groups=1')),
  # Two actors, threads which end and restart together.
  'sebulba with threads': (4, ('--actors_as_threads', '--envs_per_actor=4', '--env_groups=2')),
  'impala': (2, ('--envs_per_actor=2',)),
  # Two inference nodes of two actors.
  'sebulba': (8, ('--num_actors=4', '--inference_nodes=2', '--envs_per_actor=4', '--env_groups=2')),
}


@pytest.mark.slow
@pytest.mark.parametrize(
  'program_name',
  [
    'gala_sebulba',
    pytest.param('sebulba with threads', marks=pytest.mark.nightly),
    'impala',
    pytest.param('sebulba', marks=pytest.mark.nightly),
    pytest.param('population_sebulba', marks=pytest.mark.nightly),
  ],
)
def test_no_environment_has_the_seed_or_the_actions_of_another(
  start_program, tmp_path, program_name
):
  num_batches, flags = PROGRAMS[program_name]
  (tmp_path / 'told.py').write_text(CATCH)
  told = lambda: [json.loads(path.read_text()) for path in tmp_path.glob('*-*.json')]  # noqa: E731
  acted = lambda: [actions for _, actions in told() if len(actions[0]) == 2]  # noqa: E731

  program = start_program(
    f'--program={program_name.split()[0]}',
    f'--env={tmp_path}/told.py:make',
    *FLAGS,
    *flags,
    small=(),
  )
  program.wait_until(lambda: len(acted()) > num_batches, 'a restarted actor acts')
  program.wait_until(program.checkpoint_counts, 'a checkpoint')
  program.launcher.terminate()
  assert program.end()[0] == 143
  before = len(acted())
  program = start_program(f'--resume={program.run_dir}')
  program.wait_until(lambda: len(acted()) >= before + num_batches, 'the resumed actors act')
  program.launcher.terminate()
  assert program.end()[0] == 143

  seeds = [seed for seed, _ in told()]
  assert len(set(seeds)) == len(seeds)
  sequences = [each for actions in acted() for each in zip(*actions, strict=True)]
  assert len(set(sequences)) == len(sequences)
