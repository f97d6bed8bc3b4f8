"""MuZero's targets and policies as plain loops in float64: slow, and written apart from the agent."""

from __future__ import annotations

import numpy as np

from agents.types import LAST
from tests.agents import r2d2_definition


def targets(config, timestep, values, policies, b, t):
  """Walks from start t of environment b through the model's steps.

  Args:
    config: of the agent.
    timestep: fields are `[B, L]`.
    values: `[B, L]`, to bootstrap from.
    policies: `[B, R, A]`.
    b: the environment.
    t: the start.

  Returns:
    For each step k = 0 .. K, (reward, value, policy); None for what is not learned.
  """
  nothing = (None, None, None)
  if timestep.step_type[b, t] == LAST:
    return [nothing] * (config.num_unroll_steps + 1)
  transposed = timestep._replace(
    step_type=timestep.step_type.T, reward=timestep.reward.T, discount=timestep.discount.T
  )
  found, over = [], None
  for k in range(config.num_unroll_steps + 1):
    row = t + k
    if over is not None:
      found.append((0.0, 0.0, None) if over == 'terminated' else nothing)
      continue
    reward = None if k == 0 else float(timestep.reward[b, row])
    if timestep.step_type[b, row] == LAST and timestep.discount[b, row] == 0:
      over = 'terminated'
      found.append((reward, 0.0, None))
      continue
    if timestep.step_type[b, row] == LAST:
      over = 'truncated'
    value = r2d2_definition.n_step_return(
      values.T, transposed, b, row, config.n_step, config.discount
    )
    found.append((reward, value, policies[b, row]))
  return found


def gumbel_policy(logits, value, q_values, visits, c_visit=50.0, c_scale=0.1):
  """Returns the improved policy of G's equation 10 and appendix D, `[A]`, for one state."""
  prior = np.exp(logits) / np.sum(np.exp(logits))
  visited = visits > 0
  weighted = np.sum(prior[visited] * q_values[visited]) / np.sum(prior[visited])
  v_mix = (value + visits.sum() * weighted) / (1 + visits.sum())
  completed = np.where(visited, q_values, v_mix)
  rescaled = (completed - completed.min()) / (completed.max() - completed.min())
  scores = logits + (c_visit + visits.max()) * c_scale * rescaled
  return np.exp(scores) / np.sum(np.exp(scores))
