"""What each program's options are, by default and with each preset, recorded so that a change is seen.

python -m tests.programs.test_resolved_options writes the files again, for a change that is meant.
"""

import json
import pathlib

import pytest

from agents import options
from programs import registry
from programs.options import agent_choice, configs, preset_choice

RECORDED = pathlib.Path(__file__).parent / 'resolved_options'
# What a rule follows, and what is another on each machine.
FIXED = {'cpu_cores': 2}


def resolved(program):
  """Returns {agent: {'defaults': every option, 'ENV, PRESET': the options that differ from them}}."""
  module, found = registry.load(program), {}
  for agent, variant in agent_choice.variants(module).items():
    given = FIXED | ({'agent': agent} if agent else {})
    defaults = options.flatten(configs.resolve(module, given | {'preset': 'none'}))
    found[agent] = {'defaults': defaults}
    for name, table in preset_choice.tables(variant).items():
      for env in sorted(table):
        values = options.flatten(configs.resolve(module, given | {'env': env, 'preset': name}))
        changed = {
          n: v for n, v in values.items() if v != defaults[n] and n not in ('env', 'preset')
        }
        found[agent][f'{env}, {name}'] = changed
  return json.loads(json.dumps(found))


def _text(found):
  """Returns JSON with a line for each default and for each preset's changes."""

  def lines(rows, indent, of_row=json.dumps):
    parts = [f'{indent}  {json.dumps(name)}: {of_row(row)}' for name, row in rows.items()]
    return '{\n' + ',\n'.join(parts) + f'\n{indent}}}'

  def agent(rows):
    defaults = lines(rows['defaults'], '    ')
    changes = {name: json.dumps(row) for name, row in rows.items() if name != 'defaults'}
    return lines({'defaults': defaults, **changes}, '  ', str)

  return lines(found, '', agent) + '\n'


@pytest.mark.parametrize('program', registry.PROGRAMS)
def test_presets_and_defaults_are_as_recorded(program):
  recorded = json.loads((RECORDED / f'{program}.json').read_text())
  found = resolved(program)
  assert found.keys() == recorded.keys()
  for agent, rows in found.items():
    assert rows == recorded[agent]


if __name__ == '__main__':
  RECORDED.mkdir(exist_ok=True)
  for name in registry.PROGRAMS:
    (RECORDED / f'{name}.json').write_text(_text(resolved(name)))
