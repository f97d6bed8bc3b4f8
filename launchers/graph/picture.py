"""Draws a graph with its groups, edges and placement, as Mermaid text or an SVG file.

GitHub, GitLab and many editors render Mermaid in Markdown; any browser renders SVG. Neither needs a
further dependency.
"""

from __future__ import annotations

import os
import textwrap
from collections.abc import Mapping
from xml.sax.saxutils import escape

import launchpad as lp

from launchers.graph import describe
from launchers.placement import Resources

SUFFIXES = ('.svg', '.mmd', '.md')
# Fill colour of a group's box, by the kind of machine.
_FILLS = {'accelerator': '#fde2c4', 'worker': '#dcebfa', 'launcher': '#e6e6e6'}
_BOX_WIDTH, _LINE, _GAP_X, _GAP_Y, _MARGIN = 200, 16, 90, 28, 30


def check_path(path: str) -> None:
  """Checks that a picture can be written to a path.

  Raises:
    ValueError: one sentence that names the flag.
  """
  if os.path.splitext(path)[1] not in SUFFIXES:
    raise ValueError(f'--graph={path} must end in one of {", ".join(SUFFIXES)}.')


def write(path: str, program: lp.Program, placement: Mapping[str, Resources]) -> None:
  """Writes the picture in the format of the path's suffix; the path is that of --graph, or of a run.

  Raises:
    ValueError: if the suffix is unknown or the file cannot be written; one sentence.
  """
  check_path(path)
  suffix = os.path.splitext(path)[1]
  if suffix == '.svg':
    text = svg(program, placement)
  else:
    text = mermaid(program, placement)
    if suffix == '.md':
      text = f'# The graph of {program.name}\n\n```mermaid\n{text}```\n'
  try:
    with open(path, 'w') as f:
      f.write(text)
  except OSError as error:
    raise ValueError(f'the graph {path} cannot be written: {error.strerror}.') from error


def mermaid(program: lp.Program, placement: Mapping[str, Resources]) -> str:
  """Returns the graph as a Mermaid flowchart."""
  lines = ['flowchart LR']
  for label in program.groups:
    text = '<br/>'.join(escape(line, {'"': '#quot;'}) for line in _words(program, placement, label))
    lines.append(f'  {label}["{text}"]:::{_place(placement[label])}')
  for (source, target), count in describe.edges(program).items():
    lines.append(f'  {source} -->|{count}| {target}')
  lines += [f'  classDef {place} fill:{fill},color:#000' for place, fill in _FILLS.items()]
  return '\n'.join(lines) + '\n'


def svg(program: lp.Program, placement: Mapping[str, Resources]) -> str:
  """Returns the graph as an SVG file, with callers to the left of the nodes that they call."""
  edges = describe.edges(program)
  columns = _columns(list(program.groups), edges)
  texts = {label: _words(program, placement, label) for label in program.groups}
  heights = {label: _LINE * (len(text) + 1) for label, text in texts.items()}
  column_heights = [sum(heights[n] + _GAP_Y for n in column) - _GAP_Y for column in columns]
  boxes: dict[str, tuple[float, float]] = {}
  for i, column in enumerate(columns):
    y = _MARGIN + (max(column_heights) - column_heights[i]) / 2
    for label in column:
      boxes[label] = (_MARGIN + i * (_BOX_WIDTH + _GAP_X), y)
      y += heights[label] + _GAP_Y
  parts: list[str] = []
  low, below = float(_MARGIN + max(column_heights)), 0
  for (source, target), count in edges.items():
    (x0, y0), (x1, y1) = boxes[source], boxes[target]
    right, foot = x0 + _BOX_WIDTH, y1 + heights[target]
    if x1 - x0 == _BOX_WIDTH + _GAP_X:
      curve = [(right, y0 + heights[source] / 2), (right + _GAP_X / 2, y0 + heights[source] / 2)]
      curve += [(x1 - _GAP_X / 2, y1 + heights[target] / 2), (x1, y1 + heights[target] / 2)]
    else:  # Passes below the groups between, and below earlier such edges.
      low += 1.5 * _GAP_Y
      below += 1
      enter = x1 + _BOX_WIDTH * below / (len(edges) + 1)
      curve = [(right, y0 + heights[source] * 0.8), (right + _GAP_X / 2, low)]
      curve += [(enter, low), (enter, foot)]
    points = ' '.join(f'{x:.0f} {y:.0f}' for x, y in curve[1:])
    x, y = (sum(w * c[i] for w, c in zip((1, 3, 3, 1), curve, strict=True)) / 8 for i in (0, 1))
    parts.append(
      f'<path d="M{curve[0][0]:.0f} {curve[0][1]:.0f} C{points}" fill="none" stroke="#666" '
      'marker-end="url(#head)"/>'
      f'<text x="{x:.0f}" y="{y - 4:.0f}" text-anchor="middle">{count}</text>'
    )
  for label, (x, y) in boxes.items():
    fill = _FILLS[_place(placement[label])]
    parts.append(
      f'<rect x="{x}" y="{y}" width="{_BOX_WIDTH}" height="{heights[label]}" rx="6" '
      f'fill="{fill}" stroke="#666"/>'
    )
    for i, line in enumerate(texts[label]):
      weight = ' font-weight="bold"' if i == 0 else ''
      parts.append(f'<text x="{x + 10}" y="{y + _LINE * (i + 1.2)}"{weight}>{escape(line)}</text>')
  width = 2 * _MARGIN + len(columns) * (_BOX_WIDTH + _GAP_X) - _GAP_X
  body = '\n'.join(parts)
  return f"""\
<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{low + _MARGIN}" \
font-family="sans-serif" font-size="12">
<defs><marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" \
orient="auto"><path d="M0 0 8 4 0 8z"/></marker></defs>
<rect width="100%" height="100%" fill="#fff"/>
<text x="{_MARGIN}" y="18" font-weight="bold">{escape(program.name)}</text>
{body}
</svg>
"""


def _words(program: lp.Program, placement: Mapping[str, Resources], label: str) -> list[str]:
  """Returns the lines of a group's box: its name, its nodes and their placement."""
  nodes = program.groups[label]
  where = placement[label].describe()
  runs = f'{len(nodes)} x {describe.what_runs(nodes[0]) or type(nodes[0]).__name__}'
  return [label, runs, *textwrap.wrap(where, 30)]


def _place(resources: Resources) -> str:
  if resources.accelerator:
    return 'accelerator'
  return 'launcher' if resources.with_launcher else 'worker'


def _columns(groups: list[str], edges: Mapping[tuple[str, str], int]) -> list[list[str]]:
  """Returns the groups in columns, each group to the right of its callers.

  Cycles of calls are limited to as many columns as groups.
  """
  column = dict.fromkeys(groups, 0)
  for _ in groups:
    for source, target in edges:
      if source != target:
        column[target] = min(max(column[target], column[source] + 1), len(groups) - 1)
  columns: list[list[str]] = [[] for _ in range(max(column.values()) + 1)]
  for label in groups:
    columns[column[label]].append(label)
  return [names for names in columns if names]
