"""Writes the generated parts of the pages, from the definitions of the options and the examples' code.

python docs/generate.py            rewrites them in docs/
python docs/generate.py --check    names the pages that would change, and exits with 1

A part is between two comments: `<!-- from examples/corridor.py, by make docs -->` and `<!-- end -->`.
The first one names a file of Python, or a function or class of it as in `examples/mine.py:Config`, or
`options` or `presets`.
"""

from __future__ import annotations

import ast
import html
import inspect
import pathlib
import re
import sys
from collections.abc import Collection, Iterator
from typing import Any

ROOT = pathlib.Path(__file__).parent.parent
if str(ROOT) not in sys.path:
  sys.path.insert(0, str(ROOT))
_BEGIN, _END = '<!-- from ', '<!-- end -->'
_PART = re.compile(rf'{_BEGIN}(\S+), by make docs -->\n.*?{_END}', re.DOTALL)


def filled(text: str) -> str:
  """Returns the text of a page with its generated parts as they have to be.

  Raises:
    ValueError: a part has no end, or names what does not exist; one sentence.
  """
  if len(_PART.findall(text)) != text.count(_BEGIN):
    raise ValueError(f'every {_BEGIN}NAME, by make docs --> needs its {_END}.')
  return _PART.sub(lambda part: '\n'.join([part[0].split('\n')[0], *_lines(part[1]), _END]), text)


def _lines(source: str) -> Iterator[str]:
  if source == 'options':
    yield from (*_program_options(), *_launch_flags(), '')
  elif source == 'presets':
    yield from ('', *_presets(), '')
  else:
    yield from ('```python', _code(source), '```')


def _code(source: str) -> str:
  """Returns the code of a file, or of one function or class at its top level."""
  path, _, name = source.partition(':')
  if not (ROOT / path).is_file():
    raise ValueError(f'{_BEGIN}{source} names no file of the repository.')
  text = (ROOT / path).read_text().rstrip('\n')
  if not name:
    return text
  for node in ast.parse(text).body:
    if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name:
      first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
      return '\n'.join(text.split('\n')[first - 1 : node.end_lineno])
  raise ValueError(f'{_BEGIN}{source} names no function or class of that file.')


def _program_options() -> Iterator[str]:
  """Yields a table for each class that declares options, with the programs that have it."""
  from agents import options

  owners: dict[type, dict[str, dict[str, Any]]] = {}
  for program, variant in _variants():
    for leaf in options.leaves(variant.defaults):
      if leaf.flag:
        owners.setdefault(leaf.owner, {}).setdefault(leaf.name, {})[program] = leaf
  order = sorted(owners, key=lambda owner: -len(_programs(owners[owner])))
  for owner in order:
    programs = _programs(owners[owner])
    short = _short(programs)
    yield f'\n## {owner.__name__.removesuffix("Config").removesuffix("Options")}\n'
    summary, _, _ = (inspect.getdoc(owner) or '').partition('\n')
    yield f'{summary}\n'
    yield f'Programs: {", ".join(f"`{program}`" for program in short)}.\n'
    yield '| option | default | meaning |\n|---|---|---|'
    for name, by_program in owners[owner].items():
      text = next(iter(by_program.values())).help
      yield f'| `--{name}` | {_default(by_program, programs)} | {_cell(text)} |'


def _variants() -> Iterator[tuple[str, Any]]:
  """Yields each program with each of its agents, named program/agent, or program if it has one."""
  from programs import registry
  from programs.options.agent_choice import variants

  for program in sorted(registry.PROGRAMS):
    found = variants(registry.load(program))
    for agent, variant in found.items():
      yield (f'{program}/{agent}' if len(found) > 1 else program), variant


def _programs(leaves: dict[str, dict[str, Any]]) -> list[str]:
  return sorted({program for by_program in leaves.values() for program in by_program})


def _short(programs: Collection[str]) -> list[str]:
  """Returns programs, with the program's name alone in place of it with each of its agents."""
  agents: dict[str, set[str]] = {}
  for name, _ in _variants():
    agents.setdefault(name.partition('/')[0], set()).add(name)
  whole = {program for program, names in agents.items() if names <= set(programs)}
  return sorted(whole | {name for name in programs if name.partition('/')[0] not in whole})


def _default(leaves: dict[str, Any], programs: list[str]) -> str:
  shown: dict[str, list[str]] = {}
  for program, leaf in leaves.items():
    shown.setdefault(_value(leaf.value), []).append(program)
  if len(shown) == 1 and set(leaves) == set(programs):
    return next(iter(shown))
  return ', '.join(f'{value} ({", ".join(_short(names))})' for value, names in shown.items())


def _value(value: Any) -> str:
  if isinstance(value, tuple):
    value = ','.join(map(str, value))
  return 'none' if value in ('', None, []) else f'`{_cell(str(value))}`'


def _presets() -> Iterator[str]:
  """Yields what each preset of each program sets for a family of environments."""
  from programs import preset_list
  from programs.options import preset_choice

  yield '| program | preset | environment | options |\n|---|---|---|---|'
  for program, variant in _variants():
    for name, table in preset_choice.tables(variant).items():
      for env, options in table.items():
        flags = (f'`--{option}={preset_list.plain(value)}`' for option, value in options.items())
        yield f'| {program} | {name} | `{env}` | {" ".join(flags)} |'
  yield '\n`*` means every other environment.'


def _launch_flags() -> Iterator[str]:
  """Yields the flags of launch.py and of the launchers."""
  from absl import flags

  import launch  # Defines them.

  by_engine: dict[str, list[Any]] = {}
  for module, defined in flags.FLAGS.flags_by_module_dict().items():
    folder, _, rest = module.partition('.')
    if folder in (launch.__name__, 'launchers', 'programs'):
      engine = rest.rpartition('.')[0] if folder == 'launchers' else ''
      by_engine.setdefault(engine, []).extend(defined)
  for engine in sorted(by_engine):
    yield f'\n## launch.py{engine and f" with {engine}"}\n'
    yield '| flag | default | meaning |\n|---|---|---|'
    for flag in by_engine[engine]:
      yield f'| `--{flag.name}` | {_value(flag.default)} | {_cell(flag.help)} |'


def _cell(text: str) -> str:
  """Returns a text as one cell of a Markdown table."""
  return html.escape(' '.join(text.split()), quote=False).replace('|', '\\|')


def main(check: bool) -> int:
  """Rewrites the pages, or names those that would change; returns the exit code."""
  code = 0
  for page in sorted((ROOT / 'docs').rglob('*.md')):
    before = page.read_text()
    try:
      after = filled(before)
    except ValueError as error:
      print(f'{page.relative_to(ROOT)}: {error}')
      code = 1
      continue
    if check and after != before:
      print(f'{page.relative_to(ROOT)} is not what `make docs` writes')
      code = 1
    elif after != before:
      page.write_text(after)
  return code


if __name__ == '__main__':
  sys.exit(main('--check' in sys.argv[1:]))
