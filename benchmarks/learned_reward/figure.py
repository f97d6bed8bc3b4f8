"""The learned reward of each object over a lifetime, as a figure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from benchmarks.learned_reward.by_object import Chosen
from sweeps import svg

_STANDARD_ERRORS = 1.96  # Of a 95% interval.


def draw(title: str, objects: Sequence[Chosen]) -> bytes:
  """Returns an SVG file: above the mean rewards with their intervals, below the shares of the choices.

  Args:
    title: of the figure.
    objects: A, B, and so on.
  """

  def panels(figure: Figure) -> None:
    figure.subplots_adjust(left=0.11, right=0.97, top=0.92, bottom=0.13, hspace=0.1)
    above, below = figure.subplots(2, sharex=True, height_ratios=(2, 1))
    for i, chosen in enumerate(objects):
      episodes, colour, label = np.arange(1, len(chosen.mean) + 1), f'C{i}', chr(ord('A') + i)
      margin = _STANDARD_ERRORS * chosen.error
      above.plot(episodes, chosen.mean, color=colour, label=label)
      above.fill_between(
        episodes,
        chosen.mean - margin,
        chosen.mean + margin,
        color=colour,
        alpha=0.2,
        linewidth=0,
      )
      below.plot(episodes, chosen.share, color=colour)
    above.set_title(title, fontsize='medium')
    above.set_ylabel('learned reward')
    above.legend(fontsize='small')
    below.set_ylim(0, 1)
    below.set_ylabel('share of choices')
    below.set_xlabel('inner episode of the lifetime')
    for axes in (above, below):
      axes.grid(alpha=0.3)

  return svg.drawn(panels)
