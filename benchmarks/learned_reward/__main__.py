"""Draws the reward that a run has learned.

python -m benchmarks.learned_reward RUN_DIR --output=reward.svg
python -m benchmarks.learned_reward RUN_DIR --components=2,3 --output=posterior.svg

Of a run of --program=intrinsic_rewards in which each inner episode is one choice, as by default in
lifetime:random_abc, the figure has, by inner episode, the mean learned reward of each object over the
lifetimes that choose it there, with its 95% interval, and their share.

Of a run of --program=offline --agent=avril, it has mean and standard deviation of the reward's posterior
where two components of the observation vary over more than what is recorded. The others have their mean
in the recordings, whose observations are dots. The recordings have to be where they were.

If the run has not ended, its newest checkpoint is used.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from agents.seeding import Seed
from environments.base import describe
from nodes.unrolls import transitions
from programs import runs
from programs.options import agent_choice
from programs.parts import offline
from rundir import saved_params
from viewing import command_line, output


def _figure(args: argparse.Namespace) -> bytes:
  """Draws the reward of a run.

  Raises:
    ValueError: the run has no parameters, or is of another kind; one sentence.
  """
  run = runs.recorded_run(args.run_dir)
  if run.program == 'intrinsic_rewards':
    return _lifetimes(args, run)
  agent = agent_choice.name_of(run.module, run.config)
  if agent == 'avril':
    return _posterior(args, run)
  raise ValueError(
    f'{args.run_dir} has trained {agent or run.program}, which learns no reward; name a run of '
    '--program=intrinsic_rewards, or of --program=offline --agent=avril.'
  )


def _lifetimes(args: argparse.Namespace, run: runs.Run) -> bytes:
  """Plays lifetimes with the parameters of a run, and draws them."""
  # These modules import JAX, which takes seconds.
  from agents import shapes
  from benchmarks.learned_reward import by_object, figure, lifetimes
  from nodes.learning import serialisation

  run_dir, config = args.run_dir, run.config
  environment = run.module.environments.make(config.run.env, config.run.env_options)
  agent = run.module.make_agent(config)(environment.observation_spec, environment.action_spec)
  params = serialisation.params(saved_params.read(run_dir), shapes.params(agent))
  key = Seed(args.seed).child('evaluate').key()
  try:
    choices = lifetimes.play(agent, environment, params, args.lifetimes, key)
  except ValueError as error:
    raise ValueError(f'{run_dir}, --env={config.run.env}: {error}') from error
  objects = by_object.by_object(choices, environment.action_spec.num_values)
  return figure.draw(f'{config.run.env}, {args.lifetimes} lifetimes', objects)


def _posterior(args: argparse.Namespace, run: runs.Run) -> bytes:
  """Draws the posterior of a run over two components of the observation."""
  from agents import shapes
  from benchmarks.learned_reward import posterior
  from nodes.learning import serialisation

  config = run.config
  make_environment = run.module.environments.maker(config.run.env, config.run.env_options)
  spec, _ = describe(make_environment)
  components = _components(args.components, spec.observations)
  transitions.check(config.replay.offline_dirs, spec)
  found = offline.recorded(config.replay)
  chunks = transitions.read(found.run_dirs, found.recorded, found.wanted)
  observations = np.concatenate([chunk['timestep/observation'][:, 0] for chunk in chunks])
  agent = run.module.make_agent(config)(spec.observations, spec.actions)
  params = serialisation.params(saved_params.read(args.run_dir), shapes.params(agent))
  plane = posterior.over_plane(agent, params, observations, components)
  title = f'AVRIL on {config.run.env}, {len(observations)} transitions'
  return posterior.draw(title, plane, components)


def _components(text: str, observations: Any) -> tuple[int, int]:
  """Returns --components, two indices of an observation.

  Raises:
    ValueError: they are not; one sentence.
  """
  shape: Sequence[int] = getattr(observations, 'shape', ())
  if len(shape) != 1 or not np.issubdtype(observations.dtype, np.floating) or shape[0] < 2:
    raise ValueError(
      'the posterior is drawn over vectors of floats, and these observations are not.'
    )
  numbers = [int(word) for word in text.split(',') if word.isdigit() and int(word) < shape[0]]
  if len(set(numbers)) != 2 or len(text.split(',')) != 2:
    raise ValueError(
      f'--components={text} must be two different numbers from 0 to {shape[0] - 1}, such as 0,1.'
    )
  return numbers[0], numbers[1]


def main(argv: Sequence[str]) -> int:
  """Runs the command; returns the exit code."""
  parser = command_line.parser(__doc__)
  parser.add_argument('run_dir', help='directory of a run')
  parser.add_argument('--output', required=True, help='the SVG file to write')
  parser.add_argument('--lifetimes', type=int, default=1000, help='lifetimes to play (1000)')
  parser.add_argument('--seed', type=int, default=0, help='seed of the lifetimes (0)')
  parser.add_argument(
    '--components', default='0,1', help='of the observation, over which a posterior is drawn (0,1)'
  )
  args = parser.parse_args(argv)
  try:
    if args.lifetimes < 1:
      raise ValueError(f'--lifetimes={args.lifetimes} must be at least 1.')
    drawn = _figure(args)
    with open(args.output, 'wb') as f:
      f.write(drawn)
  except BrokenPipeError:
    raise
  except (ValueError, OSError) as error:
    print(f'error: {error}', file=sys.stderr)
    return 2
  print(f'wrote {args.output}')
  return 0


if __name__ == '__main__':
  os.environ.setdefault('JAX_PLATFORMS', 'cpu')
  sys.exit(output.run(lambda: main(sys.argv[1:])))
