"""Evaluates what a run has learned: whole episodes, without exploration, in this process.

python evaluate.py RUN_DIR                                   the final parameters, 100 episodes
python evaluate.py RUN_DIR --checkpoint=newest --episodes=20
python evaluate.py RUN_DIR --video=policy.gif                and records what the policy does
python evaluate.py RUN_DIR --json=score.json

It runs on the CPU, beside a run that has the accelerator, unless JAX_PLATFORMS says otherwise.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import sys
import tempfile
from typing import Any

from absl import app, flags

from launchers import run_directory
from programs import runs

_EPISODES = flags.DEFINE_integer(
  'episodes', 100, 'how many to play, rounded up to as many from each environment'
)
_NUM_ENVS = flags.DEFINE_integer(
  'num_envs', 0, "environments played at once; 0: as many as the run's evaluator"
)
_CHECKPOINT = flags.DEFINE_string(
  'checkpoint',
  '',
  'which parameters: final, newest, or the learner_steps of a checkpoint; '
  'empty: the final ones, or if the run has not come to its end, the newest',
)
_SEED = flags.DEFINE_integer('seed', 0, 'of environments and action sampling', lower_bound=0)
_VIDEO = flags.DEFINE_string('video', '', 'file.gif for a recording of the first environment')
_VIDEO_EPISODES = flags.DEFINE_integer('video_episodes', 3, 'how many of its episodes to record')
_VIDEO_FRAMES = flags.DEFINE_integer('video_frames', 1000, 'frames in a recording at most')
_JSON = flags.DEFINE_string('json', '', 'file for the score and its protocol')

_DEFAULT_NUM_ENVS = 10


def _check_flags(argv: list[str]) -> str:
  """Returns the run directory; raises ValueError if the command line makes no sense."""
  if len(argv) != 2:
    raise ValueError('name one run directory: python evaluate.py RUN_DIR --episodes=20.')
  for number in (_EPISODES, _VIDEO_EPISODES, _VIDEO_FRAMES):
    if number.value < 1:
      raise ValueError(f'--{number.name}={number.value} must be at least 1.')
  if _NUM_ENVS.value < 0:
    raise ValueError(f'--num_envs={_NUM_ENVS.value} must be at least 1, or 0 to have it chosen.')
  if _VIDEO.value and not _VIDEO.value.endswith('.gif'):
    raise ValueError(f'--video={_VIDEO.value} must end in .gif.')
  for file in (_VIDEO, _JSON):
    if file.value:
      _check_writable(file.name, file.value)
  return argv[1]


def _check_writable(name: str, path: str) -> None:
  """Tries whether a file can be written, before anything is played for it."""
  try:
    if os.path.isdir(path):
      raise IsADirectoryError(0, 'it is a directory')
    with tempfile.TemporaryFile(dir=os.path.dirname(path) or '.'):
      pass
  except OSError as error:
    raise ValueError(f'--{name}={path} cannot be written: {error.strerror}.') from error


def _evaluate(path: str) -> dict[str, Any]:
  """Plays, and records where that is asked for; returns the score and its protocol."""
  run = runs.recorded_run(path)
  # What follows imports JAX, which takes seconds.
  from viewing import evaluation, parameters
  from viewing.film import Film

  config, environments = run.config, run.module.environments
  summary = run_directory.read_summary(path) or {}
  counters = ('actor_steps', 'environment_frames', 'learner_steps')
  at_the_end = {name: summary[name] for name in counters if name in summary}
  kept = parameters.read(path, _CHECKPOINT.value, at_the_end)
  num_envs = min(_NUM_ENVS.value or config.eval_envs or _DEFAULT_NUM_ENVS, _EPISODES.value)
  episodes_each = math.ceil(_EPISODES.value / num_envs)
  environment = evaluation.make_environment(
    environments, config.env, config.env_options, num_envs, _SEED.value
  )
  film = Film(environment, _VIDEO_EPISODES.value, _VIDEO_FRAMES.value)
  try:
    make_agent = run.module.make_agent(config)
    agent = make_agent(environment.observation_spec(), environment.action_spec())
    params = parameters.fit(kept, agent)
    watched = film if _VIDEO.value else environment
    played = evaluation.play(agent, params, watched, episodes_each, _SEED.value)
  finally:
    environment.close()
  protocol = {
    'program': run.program,
    'env': config.env,
    'env_options': environments.all_options(config.env, config.env_options),
    'action_repeat': environment.action_repeat,
    'reward': 'raw',
    'exploration': float(agent.evaluation_exploration),
    'num_envs': num_envs,
    'episodes_each': episodes_each,
    'seed': _SEED.value,
  }
  result = {
    'score': dataclasses.asdict(evaluation.score(played)),
    'protocol': protocol,
    'parameters': {'file': kept.path, **kept.counts},
  }
  if _VIDEO.value:
    film.save(_VIDEO.value)
    result['video'] = {'file': _VIDEO.value, 'frames': len(film.rows), 'cut': film.cut}
  return result


def _text(result: dict[str, Any]) -> str:
  """Returns a score for people."""
  score, protocol, kept = result['score'], result['protocol'], dict(result['parameters'])
  options = ','.join(f'{name}={value}' for name, value in protocol['env_options'].items())
  greedy = f'exploration {protocol["exploration"]:g}' if protocol['exploration'] else 'greedy'
  file = kept.pop('file')
  counts = ' '.join(f'{name}={count}' for name, count in kept.items())
  lines = [
    f'return       {score["mean"]:.4g} +- {score["standard_error"]:.2g} (standard error)',
    f'             median {score["median"]:.4g}, {score["minimum"]:.4g} to {score["maximum"]:.4g}',
    f'episodes     {score["episodes"]}, of {score["mean_length"]:.4g} steps on average',
    f'parameters   {file}  {counts or "(of an earlier end of this run)"}',
    f'environment  {protocol["env"]}' + (f'  {options}' if options else ''),
    f'protocol     {greedy}, raw rewards, whole episodes, {protocol["episodes_each"]} from each of '
    f'{protocol["num_envs"]} environments, action repeat {protocol["action_repeat"]}, seed '
    f'{protocol["seed"]}',
  ]
  if video := result.get('video'):
    cut = f', the first --video_frames={_VIDEO_FRAMES.value}' if video['cut'] else ''
    lines.append(f'video        {video["file"]}, {video["frames"]} frames{cut}')
  return '\n'.join(lines)


def main(argv: list[str]) -> int:
  """Does what the flags say; returns the exit code."""
  try:
    result = _evaluate(_check_flags(argv))
    print(_text(result))
    if _JSON.value:
      with open(_JSON.value, 'w') as f:
        json.dump(result, f, indent=2)
  except (ValueError, OSError) as error:
    print(f'error: {error}', file=sys.stderr)
    return 2
  return 0


if __name__ == '__main__':
  os.environ.setdefault('JAX_PLATFORMS', 'cpu')
  app.run(lambda argv: sys.exit(main(argv)))
