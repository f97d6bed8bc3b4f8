"""Evaluates the parameters of a run on whole episodes, without exploration, in this process.

python evaluate.py RUN_DIR                                   the final parameters, 100 episodes
python evaluate.py RUN_DIR --sample                          with the exploration of training
python evaluate.py RUN_DIR --checkpoint=newest --episodes=20
python evaluate.py RUN_DIR --video=policy.gif                also records the policy
python evaluate.py RUN_DIR --json=score.json
python evaluate.py RUN_DIR --export=DIR                      also writes it for JAX and flatbuffers

If the program, agent, environment or torso of the run is a Python file, this command executes it: read
config.json before you evaluate another person's run.
It runs on the CPU, so that a run can use the accelerator meanwhile; set JAX_PLATFORMS to change this.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import math
import os
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

from agents import options
from agents.seeding import Seed
from programs import runs
from programs.options import bsuite_results
from rundir import run_end, saved_params, secrets
from viewing import command_line, output

_DEFAULT_NUM_ENVS = 10
_MOST_ENVS = 10_000


def _parse(argv: Sequence[str]) -> argparse.Namespace:
  """Returns the flags; raises a one-sentence ValueError if they are invalid."""
  parser = command_line.parser(__doc__)
  add = parser.add_argument
  add('run_dir', help='directory of a run')
  add(
    '--episodes',
    type=int,
    default=100,
    help='episodes to play, rounded up to the same number per environment (100)',
  )
  add(
    '--num_envs',
    type=int,
    default=0,
    help="environments played at once; 0: as many as the run's evaluator (0)",
  )
  add(
    '--checkpoint',
    default='',
    help='which parameters: final, newest, or the learner_steps of a checkpoint; if left out, final, '
    'or newest if the run has not ended',
  )
  add(
    '--env_options',
    help="options of the environment that differ from the run's, for another protocol",
  )
  add(
    '--sample',
    action='store_true',
    help='act as in training: V-trace and PPO sample from their policy, other agents explore',
  )
  add('--seed', type=int, default=0, help='seed of environments and action sampling (0)')
  add('--video', default='', help='write a recording of the first environment to this GIF file')
  add('--video_episodes', type=int, default=3, help='episodes to record (3)')
  add(
    '--video_frames',
    type=int,
    default=1000,
    help='maximum number of frames in the recording (1000)',
  )
  add('--json', default='', help='write the score and its protocol to this file')
  add(
    '--export',
    default='',
    help='write the policy, its specs and a script that needs JAX and flatbuffers to this directory',
  )
  args = parser.parse_args(argv)
  for name in ('episodes', 'video_episodes', 'video_frames'):
    if getattr(args, name) < 1:
      raise ValueError(f'--{name}={getattr(args, name)} must be at least 1.')
  for name in ('num_envs', 'seed'):
    if getattr(args, name) < 0:
      raise ValueError(f'--{name}={getattr(args, name)} must not be negative.')
  if args.num_envs > _MOST_ENVS:
    raise ValueError(f'--num_envs={args.num_envs} must be at most {_MOST_ENVS}.')
  if args.video and not args.video.endswith('.gif'):
    raise ValueError(f'--video={args.video} must end in .gif.')
  for name in ('video', 'json'):
    if getattr(args, name):
      _check_writable(name, getattr(args, name))
  return args


def _check_writable(name: str, path: str) -> None:
  """Checks that a file can be written, before any episode is played."""
  try:
    if os.path.isdir(path):
      raise IsADirectoryError(0, 'it is a directory')
    with tempfile.TemporaryFile(dir=os.path.dirname(path) or '.'):
      pass
  except OSError as error:
    raise ValueError(f'--{name}={path} cannot be written: {error.strerror}.') from error


def _check_platform() -> None:
  """Checks that JAX has the devices that JAX_PLATFORMS names."""
  import jax

  try:
    jax.devices()
  except (RuntimeError, AssertionError) as error:  # The latter for a missing GPU.
    why = f' ({str(error).splitlines()[0]})' if str(error) else ''
    raise ValueError(
      f'JAX_PLATFORMS={os.environ.get("JAX_PLATFORMS", "")} names a device that JAX does not find on '
      f'this machine{why}; leave it out to evaluate on the CPU.'
    ) from error


def _evaluate(args: argparse.Namespace) -> dict[str, Any]:
  """Plays the episodes and optionally records them; returns the score and its protocol."""
  path = args.run_dir
  run = runs.recorded_run(path)
  # These modules import JAX, which takes seconds.
  from agents import shapes
  from environments import options as env_options
  from environments.video import VideoRecorder
  from nodes.learning import serialisation
  from viewing import evaluation, export
  from viewing.local_policy import LocalPolicy

  _check_platform()
  if args.export:
    export.check_directory(args.export)
  config, environments = run.config, run.module.environments
  if run.module.make_agent is None:
    raise ValueError(
      f'{path}: there is no make_agent(config) in {run.program}; add it to the file.'
    )
  summary = run_end.read_summary(path) or {}
  counters = ('actor_steps', 'environment_frames', 'learner_steps')
  at_the_end = {name: summary[name] for name in counters if name in summary}
  kept = saved_params.read(path, args.checkpoint)
  num_envs = min(args.num_envs or config.evaluation.eval_envs or _DEFAULT_NUM_ENVS, args.episodes)
  episodes_each = math.ceil(args.episodes / num_envs)
  env_given = bsuite_results.unrecorded(config.run.env, config.run.env_options)
  env_given = env_options.merge(env_given, args.env_options or '')
  seed = Seed(args.seed).child('evaluate')
  elsewhere = {}
  if python := options.value(config, 'actor_python', ''):
    elsewhere['python'] = python
  environment = evaluation.make_environment(
    environments, config.run.env, env_given, num_envs, seed, **elsewhere
  )
  video = VideoRecorder(environment, args.video_episodes, args.video_frames)
  with contextlib.closing(environment):
    make_agent = run.module.make_agent(config)
    specs = environment.observation_spec(), environment.action_spec()
    agent = make_agent(*specs)
    advice = serialisation.RESUME
    if args.env_options:
      advice = (
        f'leave out what changes observations or actions of --env_options={args.env_options}.'
      )
    params = serialisation.params(kept, shapes.params(agent), advice)
    watched = video if args.video else environment
    max_steps = config.evaluation.eval_episode_steps
    policy = LocalPolicy(agent, params, num_envs, seed, args.sample)
    played = evaluation.play(
      watched, episodes_each, policy, max_steps, lambda: bool(args.video) and not video.complete
    )
  protocol = {
    'program': run.program,
    'env': config.run.env,
    'env_options': secrets.masked_options(
      environments.all_options(config.run.env, env_given, **elsewhere)
    ),
    'action_repeat': environment.action_repeat,
    'reward': 'raw',
    'sample': args.sample,
    'exploration': float(policy.exploration.mean()),
    'num_envs': num_envs,
    'episodes_each': len(played) // num_envs,
    'cut': bool(max_steps) and any(episode.length >= max_steps for episode in played),
    'max_episode_steps': max_steps,
    'seed': args.seed,
  }
  result = {
    'score': dataclasses.asdict(evaluation.score(played)),
    'protocol': protocol,
    'parameters': {'file': kept.path, **(kept.counts or at_the_end)},
  }
  if args.video:
    video.save(args.video)
    result['video'] = {'file': args.video, 'frames': len(video.rows), 'cut': video.cut}
  if args.export:
    takes = export.write(args.export, agent, params, *specs, num_envs, result)
    result['export'] = {'directory': args.export, 'takes': takes}
  return result


def _text(result: dict[str, Any]) -> str:
  """Returns the result as text."""
  score, protocol, kept = result['score'], result['protocol'], dict(result['parameters'])
  options = ','.join(f'{name}={value}' for name, value in protocol['env_options'].items())
  acting = f'exploration {protocol["exploration"]:g}' if protocol['exploration'] else 'greedy'
  acting = 'the exploration of training' if protocol['sample'] else acting
  whole = f'cut at {protocol["max_episode_steps"]} steps' if protocol['cut'] else 'whole episodes'
  file = kept.pop('file')
  counts = ' '.join(f'{name}={count}' for name, count in kept.items())
  lines = [
    f'return       {score["mean"]:.4g} +- {score["standard_error"]:.2g} (standard error)',
    f'             median {score["median"]:.4g}, {score["minimum"]:.4g} to {score["maximum"]:.4g}',
    f'episodes     {score["episodes"]}, of {score["mean_length"]:.4g} steps on average',
    f'parameters   {file}  {counts or "(saved before the end of the run)"}',
    f'environment  {protocol["env"]}' + (f'  {options}' if options else ''),
    f'protocol     {acting}, raw rewards, {whole}, {protocol["episodes_each"]} from each of '
    f'{protocol["num_envs"]} environments, action repeat {protocol["action_repeat"]}, seed '
    f'{protocol["seed"]}',
  ]
  if video := result.get('video'):
    cut = ', as --video_frames allows' if video['cut'] else ''
    lines.append(f'video        {video["file"]}, {video["frames"]} frames{cut}')
  if exported := result.get('export'):
    lines.append(f'export       {exported["directory"]}, for {exported["takes"]}')
  return '\n'.join(lines)


def main(argv: Sequence[str]) -> int:
  """Runs the command; returns the exit code."""
  try:
    args = _parse(argv)
    result = _evaluate(args)
    if args.json:
      with open(args.json, 'w') as f:
        json.dump(result, f, indent=2)
    print(_text(result), flush=True)
  except BrokenPipeError:
    raise
  except (ValueError, OSError) as error:
    print(f'error: {error}', file=sys.stderr)
    return 2
  return 0


if __name__ == '__main__':
  os.environ.setdefault('JAX_PLATFORMS', 'cpu')
  sys.exit(output.run(lambda: main(sys.argv[1:])))
