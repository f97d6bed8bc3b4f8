"""AVRIL's reward posterior where two components of the observation vary, and its figure."""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np
from matplotlib.figure import Figure

from agents.avril.agent import AVRIL
from agents.types import MID, Nest, Timestep
from sweeps import svg

_CELLS = 60  # Along each axis.
_SHOWN = 400  # Of the recorded observations.
_BEYOND = 0.5  # Of the recorded range, on either side of it.


class Plane(NamedTuple):
  """The posterior over a plane of observations, in whose other components all are equal.

  Attributes:
    x: the first component that varies, `[N]`.
    y: the second one, `[N]`.
    mean: of the posterior of the reward, `[N, N]`; row i has `y[i]`.
    std: its standard deviation, in the same shape.
    recorded: both components of recorded observations, `[M, 2]`.
  """

  x: np.ndarray
  y: np.ndarray
  mean: np.ndarray
  std: np.ndarray
  recorded: np.ndarray


def over_plane(
  agent: AVRIL, params: Nest, observations: np.ndarray, components: tuple[int, int]
) -> Plane:
  """Returns the posterior where two components vary over more than what is recorded.

  Args:
    agent: the agent.
    params: its parameters.
    observations: the recorded ones, float `[M, D]`. Components that do not vary have their mean.
    components: indices of those that vary.
  """
  recorded = observations[:, components]
  x, y = (_around(recorded[:, i]) for i in range(2))
  rows = np.tile(observations.mean(0), (_CELLS, _CELLS, 1)).astype(np.float32)
  rows[..., components[0]], rows[..., components[1]] = x, y[:, None]
  rows = rows.reshape(-1, observations.shape[1])
  count = len(rows)
  timestep = Timestep(
    np.full(count, MID, np.uint8), np.zeros(count, np.float32), np.ones(count, np.float32), rows
  )
  posterior = jax.jit(agent.reward)(params, timestep)
  mean, std = (
    np.asarray(a).reshape(_CELLS, _CELLS) for a in (posterior.mean, np.exp(posterior.log_std))
  )
  return Plane(x, y, mean, std, recorded)


def _around(values: np.ndarray) -> np.ndarray:
  low, high = values.min(), values.max()
  margin = _BEYOND * (high - low) or 1.0
  return np.linspace(low - margin, high + margin, _CELLS)


def draw(title: str, plane: Plane, components: tuple[int, int]) -> bytes:
  """Returns an SVG file: mean and standard deviation side by side, with what is recorded as dots."""
  shown = plane.recorded[:: -(-len(plane.recorded) // _SHOWN)]
  extent = (plane.x[0], plane.x[-1], plane.y[0], plane.y[-1])

  def panels(figure: Figure) -> None:
    figure.subplots_adjust(left=0.13, right=0.99, top=0.85, bottom=0.13, wspace=0.15)
    figure.suptitle(title, fontsize='medium')
    left, right = figure.subplots(1, 2, sharey=True)
    names = 'mean of the reward', 'its standard deviation'
    for axes, value, name in zip((left, right), (plane.mean, plane.std), names, strict=True):
      image = axes.imshow(value, origin='lower', extent=extent, aspect='auto')
      figure.colorbar(image, ax=axes)
      axes.plot(*shown.T, '.', color='white', markersize=2, alpha=0.6)
      axes.set_title(name, fontsize='small')
      axes.set_xlabel(f'observation[{components[0]}]')
    left.set_ylabel(f'observation[{components[1]}]')

  return svg.drawn(panels)
