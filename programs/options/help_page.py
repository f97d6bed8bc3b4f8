"""launch.py --help: the options of the chosen program and the flags of launch.py, a line each."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator
from types import ModuleType
from typing import Any

from absl import flags

from agents.options import Leaf
from environments import user_file
from programs.options.flags import Defined

_WIDTH = 110
_LEFT = 36  # Columns of a flag with its default.
# Groups of a program's config in the order of the page, with their headings. The others come after them.
_HEADINGS = {
  'run': 'The run',
  'acting': 'Actors',
  'inference': 'Inference',
  'loop': 'The compiled loop',
  'replay': 'Replay',
  'learning': 'The learner',
  'gossip': 'Peers',
  '': 'Options of this program',
  'agent': 'The agent',
  'evaluation': 'Evaluation and videos',
  'unrolls': 'Recorded unrolls',
}
# Options of the agent under a heading of their own, by the class that declares them.
_OF_AGENT = {
  'TorsoConfig': 'Network',
  'NetworkConfig': 'Network',
  'OptimizerConfig': 'Optimizer',
}


def page(defined: Defined, engine: ModuleType) -> str:
  """Returns the text of --help.

  Args:
    defined: the options of the program.
    engine: the module of the chosen engine, whose own flags are listed too.
  """
  title = user_file.title(defined.program)
  program = flags.FLAGS['program']
  sections = {_HEADINGS['run']: [_line(program.name, title, program.help)]}
  for leaf in sorted(defined.leaves.values(), key=_place):
    sections.setdefault(_heading(leaf), []).append(_line(leaf.name, leaf.value, leaf.help))
  for heading, lines in _launch_sections(engine.__name__):
    sections.setdefault(heading, []).extend(lines)
  agent = defined.leaves.get('agent')
  said = f' --agent={defined.agent or agent.value}' if agent else ''
  head = (
    f'launch.py --program={title}{said} --flag=value ...\n\n'
    'Each flag is shown with its default, which a preset may replace: see --presets. --program and\n'
    '--agent choose whose options are listed; --helpfull and docs/options.md have the whole texts.\n'
  )
  parts = [f'{heading}\n' + '\n'.join(lines) for heading, lines in sections.items()]
  return '\n'.join([head, *(f'{part}\n' for part in parts)]).rstrip()


def _place(leaf: Leaf) -> int:
  order = [*_HEADINGS]
  place = order.index(leaf.group) if leaf.group in order else len(order)
  # The agent's own options come before those of its optimizer and its network.
  return 10 * place + ['', 'Optimizer', 'Network'].index(_part(leaf))


def _part(leaf: Leaf) -> str:
  return _OF_AGENT.get(leaf.owner.__name__, '') if leaf.group == 'agent' else ''


def _heading(leaf: Leaf) -> str:
  return _part(leaf) or _HEADINGS.get(leaf.group, leaf.group.capitalize())


def _line(name: str, value: Any, text: str) -> str:
  if isinstance(value, bool):
    left = f'--{name}={str(value).lower()}'
  else:
    shown = ','.join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    left = f'--{name}={shown if value is not None else ""}'
  room = _WIDTH - max(_LEFT, len(left) + 2) - 2
  return f'  {left.ljust(_LEFT - 2)}  {textwrap.shorten(text, room, placeholder=" ...")}'


def _launch_sections(engine: str) -> Iterator[tuple[str, list[str]]]:
  """Yields the flags of launch.py, and those of the chosen engine."""
  common: list[str] = []
  for module, defined in flags.FLAGS.flags_by_module_dict().items():
    folder, _, rest = module.partition('.')
    of_a_file = folder in ('launch', '__main__') or module.endswith('launch.py')
    of_programs = folder == 'programs' and module != 'programs.options.flags'
    if of_a_file or of_programs or (folder == 'launchers' and '.' not in rest):
      common += _lines(defined)
  yield 'Launching', sorted(common)
  launcher = engine.split('.')[1]
  yield f'--launcher={launcher}', _lines(flags.FLAGS.flags_by_module_dict().get(engine, []))


def _lines(defined: Iterable[Any]) -> list[str]:
  return [_line(flag.name, flag.default, flag.help) for flag in defined if flag.name != 'program']
