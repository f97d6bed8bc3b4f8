"""The learning curves of a task as an SVG file, the same bytes for the same curves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from sweeps import svg
from sweeps.bands import Band


class Line(NamedTuple):
  """A system's curve.

  Attributes:
    label: of the legend.
    colour: number of its colour.
    dashed: whether it is a peer's.
    band: the curve.
  """

  label: str
  colour: int
  dashed: bool
  band: Band


def draw(title: str, lines: Sequence[Line], thresholds: Sequence[float]) -> bytes:
  """Returns an SVG file: mean return over environment frames, with the interval of the mean.

  Args:
    title: of the figure.
    lines: at least one.
    thresholds: returns to mark.
  """

  def curves(figure: Figure) -> None:
    figure.subplots_adjust(left=0.11, right=0.97, top=0.92, bottom=0.13)
    axes = figure.add_subplot()
    for threshold in thresholds:
      axes.axhline(threshold, color='0.6', linewidth=0.8, linestyle=':')
    for line in lines:
      second_round = '-.' if line.colour >= 10 else '-'
      colour, style = f'C{line.colour % 10}', '--' if line.dashed else second_round
      frames, mean, low, high = line.band
      axes.plot(frames, mean, color=colour, linestyle=style, label=line.label)
      axes.fill_between(frames, low, high, color=colour, alpha=0.2, linewidth=0)
    axes.set_xlim(left=0)
    axes.xaxis.set_major_formatter(EngFormatter(sep=''))
    axes.set_xlabel('environment frames')
    axes.set_ylabel('mean episode return (raw)')
    axes.set_title(title, fontsize='medium')
    axes.grid(alpha=0.3)
    axes.legend(fontsize='small')

  return svg.drawn(curves)
