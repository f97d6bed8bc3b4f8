"""R2D2's formulas as plain loops in float64: slow, and written apart from the agent."""

from __future__ import annotations

import jax
import numpy as np

from agents.types import LAST


def h(x, epsilon):
  return np.sign(x) * (np.sqrt(np.abs(x) + 1) - 1) + epsilon * x


def h_inverse(y, epsilon):
  root = np.sqrt(1 + 4 * epsilon * (np.abs(y) + 1 + epsilon))
  return np.sign(y) * (((root - 1) / (2 * epsilon)) ** 2 - 1)


def n_step_return(values, timestep, b, t, n, gamma):
  """Walks from row t of environment b for n transitions, or until there are no more."""
  total, scale, walked, last_row = 0.0, 1.0, 0, len(values) - 1
  while walked < n and t < last_row and timestep.step_type[t, b] != LAST:
    t, walked = t + 1, walked + 1
    total += scale * float(timestep.reward[t, b])
    scale *= gamma * float(timestep.discount[t, b])
  return total + scale * float(values[t, b])


def td_errors(config, q_online, q_target, action, timestep):
  """Returns for each environment a list with the errors of its valid transitions, in order."""
  q_online, q_target = np.asarray(q_online, np.float64), np.asarray(q_target, np.float64)
  action, timestep = jax.device_get((action, timestep))
  num_rows, batch_size, _ = q_online.shape
  values = np.zeros((num_rows, batch_size))
  for t in range(num_rows):
    for b in range(batch_size):
      values[t, b] = h_inverse(q_target[t, b, np.argmax(q_online[t, b])], config.rescale_epsilon)
  errors = [[] for _ in range(batch_size)]
  for t in range(num_rows - 1):
    for b in range(batch_size):
      if timestep.step_type[t, b] != LAST:
        value = n_step_return(values, timestep, b, t, config.n_step, config.discount)
        errors[b].append(h(value, config.rescale_epsilon) - q_online[t, b, action[t, b]])
  return errors


def loss(errors, probabilities, exponent):
  raw = [1 / p**exponent for p in probabilities]
  losses = [w / max(raw) * sum(0.5 * e * e for e in es) for w, es in zip(raw, errors, strict=True)]
  return sum(losses) / len(losses)


def priorities(config, errors):
  eta = config.priority_eta
  raw = [eta * max(map(abs, es)) + (1 - eta) * sum(map(abs, es)) / len(es) for es in errors]
  return np.array([max(p, config.priority_floor) for p in raw])
