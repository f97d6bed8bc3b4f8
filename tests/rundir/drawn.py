"""Figures as they were before they became pictures."""

from matplotlib.backends.backend_agg import FigureCanvasAgg


def keep_figures(monkeypatch):
  """Returns a list that gets each figure that is written as a PNG file from now on."""
  figures, write = [], FigureCanvasAgg.print_png

  def print_png(canvas, path):
    figures.append(canvas.figure)
    write(canvas, path)

  monkeypatch.setattr(FigureCanvasAgg, 'print_png', print_png)
  return figures


def legend(axes):
  """Returns the labels of a legend."""
  return [text.get_text() for text in axes.get_legend().get_texts()]
