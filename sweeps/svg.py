"""Figures as SVG files, the same bytes for the same drawing."""

from __future__ import annotations

import io
from collections.abc import Callable

from matplotlib import style
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

# Names of elements are hashes with this salt, not random; text stays text.
_SETTINGS = {'svg.hashsalt': 'launchpod', 'svg.fonttype': 'none'}
# A date or a version would change the bytes.
_METADATA = {'Date': None, 'Creator': None}


def drawn(draw: Callable[[Figure], None]) -> bytes:
  """Returns the SVG file of what a function draws on an empty figure, in matplotlib's own style."""
  with style.context(['default', _SETTINGS]):
    figure = Figure(figsize=(7.0, 4.0))
    draw(figure)
    file = io.BytesIO()
    FigureCanvasSVG(figure).print_svg(file, metadata=_METADATA)
  return file.getvalue()
