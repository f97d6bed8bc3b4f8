"""The console of live views and tables."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.segment import Segment

from launchers import streams


class PlainConsole(Console):
  """A console on stdout that shows text as it is: brackets are no markup, and controls are escaped."""

  def __init__(self, width: int | None = None):
    """Initialises a console; `width` is in columns, None for that of the terminal."""
    super().__init__(file=streams.unfiltered(sys.stdout), width=width, markup=False, emoji=False)

  def render(self, *args: Any, **kwargs: Any) -> Iterable[Segment]:
    """Yields the segments of a renderable. Only those of rich itself control the terminal."""
    for text, style, control in super().render(*args, **kwargs):
      yield Segment(text if control else streams.printable(text), style, control)
