"""Published figures that several tasks quote."""

from __future__ import annotations

from benchmarks.results.declared import Published

_CLEANRL = 'CleanRL at fe8d8a0, docs/rl-algorithms/ppo.md'
CLEANRL_MUJOCO = 'CleanRL at fe8d8a0, docs/benchmark/ppo_continuous_action.md'
CLEANRL_SAC = 'CleanRL at 08d1c01, docs/rl-algorithms/sac.md'
CLEANRL_CONTROL = 'CleanRL at fe8d8a0, docs/rl-algorithms/rpo.md'
# Those tables print neither; the scripts have the steps as their default.
SEEDS = '3 seeds (steps by the script, seeds by benchmark/ppo.sh)'
_ZOO = 'RL Baselines3 Zoo at 0088472, benchmark.md'


def cleanrl(figure: str, what: str, source: str = _CLEANRL, agent: str = 'PPO') -> Published:
  """Returns CleanRL's figure.

  Args:
    figure: as printed.
    what: environment, steps and seeds.
    source: where it is printed.
    agent: whose figure it is.
  """
  return Published(
    system=f'CleanRL, {agent}',
    figure=figure,
    protocol=f'training returns at the end, averaged over seeds, ± as printed; {what}',
    source=source,
  )


def zoo(figure: str, what: str, agent: str = 'PPO') -> Published:
  """Returns the figure of Stable-Baselines3, as printed; `what` is environment and steps."""
  return Published(
    system=f'Stable-Baselines3, {agent}',
    figure=figure,
    protocol=f'one run, deterministic policy, mean and standard deviation over episodes; {what}',
    source=_ZOO,
  )
