"""Draws the reward that a run has learned for each object over a lifetime.

python -m benchmarks.learned_reward RUN_DIR --output=reward.svg

RUN_DIR is a run of --program=intrinsic_rewards in which each inner episode is one choice, as by default
in lifetime:random_abc. The figure has, by inner episode, the mean learned reward of each object over the
lifetimes that choose it there, with its 95% interval, and their share. If the run has not ended, its
newest checkpoint is played.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from agents.seeding import Seed
from programs import runs
from rundir import saved_params
from viewing import command_line, output


def _figure(run_dir: str, num_lifetimes: int, seed: int) -> bytes:
  """Plays lifetimes with the parameters of a run, and draws them.

  Raises:
    ValueError: the run has no parameters, or is of another kind; one sentence.
  """
  run = runs.recorded_run(run_dir)
  config = run.config
  if run.program != 'intrinsic_rewards':
    raise ValueError(
      f'{run_dir} is a run of --program={run.program}; name one of --program=intrinsic_rewards.'
    )
  # These modules import JAX, which takes seconds.
  from agents import shapes
  from benchmarks.learned_reward import by_object, figure, lifetimes
  from nodes.learning import serialisation

  environment = run.module.environments.make(config.run.env, config.run.env_options)
  agent = run.module.make_agent(config)(environment.observation_spec, environment.action_spec)
  params = serialisation.params(saved_params.read(run_dir), shapes.params(agent))
  key = Seed(seed).child('evaluate').key()
  try:
    choices = lifetimes.play(agent, environment, params, num_lifetimes, key)
  except ValueError as error:
    raise ValueError(f'{run_dir}, --env={config.run.env}: {error}') from error
  objects = by_object.by_object(choices, environment.action_spec.num_values)
  return figure.draw(f'{config.run.env}, {num_lifetimes} lifetimes', objects)


def main(argv: Sequence[str]) -> int:
  """Runs the command; returns the exit code."""
  parser = command_line.parser(__doc__)
  parser.add_argument('run_dir', help='directory of a run')
  parser.add_argument('--output', required=True, help='the SVG file to write')
  parser.add_argument('--lifetimes', type=int, default=1000, help='lifetimes to play (1000)')
  parser.add_argument('--seed', type=int, default=0, help='seed of the lifetimes (0)')
  args = parser.parse_args(argv)
  try:
    if args.lifetimes < 1:
      raise ValueError(f'--lifetimes={args.lifetimes} must be at least 1.')
    drawn = _figure(args.run_dir, args.lifetimes, args.seed)
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
