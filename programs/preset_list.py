"""What presets set, as text: for --presets, for --dry_run and for the docs."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agents import options
from environments import errors, user_file
from programs import estimates, registry
from programs.options import agent_choice, configs, preset_choice, user_agent
from programs.options.rule import Rule

_WIDTH = 100
_VALUE_WIDTH = 30  # Longer values are broken at their commas.


def listing(program: str, given: Mapping[str, Any]) -> str:
  """Returns what each preset sets, beside the default that it replaces, and what num_steps amount to.

  Args:
    program: one program; '' for all of this repository.
    given: flag name to value. `env`, `agent` and `preset` select what is listed. The others take effect,
      so that values which follow from them can be seen; each program and agent takes those that it has.

  Raises:
    ValueError: if the program, the agent, the environment, the preset or, of one program, a flag does
      not exist; one sentence.
  """
  if user_file.is_spec(
    given.get('agent', '')
  ):  # Its presets are those of the agent that it derives from.
    own = user_agent.read(given['agent'])
    given = {**given, 'agent': user_agent.described(own).base}
  programs = [user_file.absolute(program)] if program else sorted(registry.PROGRAMS)
  modules = {user_file.title(name): registry.load(name) for name in programs}
  if 'env' in given:
    modules = _with_family(modules, given['env'])
  found = _with_agent(modules, given)
  if program:
    _check_flags(found, given)
  texts = [
    text for title, module, agent in found for text in _of_agent(title, module, agent, given)
  ]
  if not texts:
    variants = (agent_choice.variants(module)[agent] for _, module, agent in found)
    there = sorted({n for v in variants for n in preset_choice.names(v, given.get('env'))})
    raise ValueError(f'--preset={given["preset"]} does not exist; there are: {", ".join(there)}.')
  return '\n\n'.join(texts)


def in_effect(module: Any, config: Any, given: Mapping[str, Any]) -> str:
  """Returns the name of a run's preset and the options that it set, as a paragraph.

  Args:
    module: the program's module.
    config: the run's config, resolved.
    given: the options that the user set.
  """
  preset = preset_choice.options(
    agent_choice.variant_of(module, config), config.run.env, config.run.preset
  )
  every = options.flatten(config)
  values = {name: plain(every[name]) for name in preset}
  words = [
    f'--{name}={value}' for name, value in values.items() if not _is_given(name, value, given)
  ]
  text = f'preset: {config.run.preset} for {user_file.title(config.run.env)}'
  text = f'{text}: {" ".join(words)}' if words else f'{text}, which sets nothing'
  return textwrap.fill(
    text, _WIDTH, subsequent_indent='  ', break_long_words=False, break_on_hyphens=False
  )


def plain(value: Any) -> str:
  """Returns an option's value as its flag takes it; the text of a rule."""
  if isinstance(value, Rule):
    return value.text
  return ','.join(map(str, value)) if isinstance(value, tuple) else str(value)


def _is_given(option: str, value: str, given: Mapping[str, Any]) -> bool:
  """Returns whether the user set all of a value; `env_options` may keep some of the preset's."""
  return option in given and (option != 'env_options' or value == plain(given[option]))


def _of_agent(title: str, module: Any, agent: str, given: Mapping[str, Any]) -> Iterator[str]:
  """Yields a text for each preset of a program with one of its agents that `given` selects."""
  variant = agent_choice.variants(module)[agent]
  if len(agent_choice.variants(module)) > 1:
    title = f'{title}, agent {agent}'
  values = {name: value for name, value in given.items() if name in _options(variant)}
  env, chosen = given.get('env'), given.get('preset')
  for name, table in preset_choice.tables(variant).items():
    if chosen in (None, name):
      keys = [env] if env is not None else sorted(table) or [preset_choice.OTHERS]
      for key in keys:
        if name in preset_choice.names(variant, key):
          selected = {'env': key, 'preset': name} | ({'agent': agent} if agent else {})
          config = configs.resolve(module, values | selected)
          yield f'program {title}, {_of_preset(variant, name, key, config, values)}'


def _of_preset(
  variant: agent_choice.Variant, name: str, env: str, config: Any, values: Mapping[str, Any]
) -> str:
  """Returns the text of one preset for an environment, or for a key of a table.

  Args:
    variant: the program with one of its agents.
    name, env: of the preset.
    config: what the preset and `values` make, resolved.
    values: the user's flags.
  """
  defaults, chosen = options.flatten(variant.defaults), options.flatten(config)
  rows = []
  for option, value in preset_choice.options(variant, env, name).items():
    shown = plain(chosen[option])
    default = plain(defaults[option]) or "''"
    if option in values:
      note = 'your flag' if _is_given(option, shown, values) else 'with your flag'
    else:
      note = value.text if isinstance(value, Rule) else ''
    rows.append((option, shown, 'the same' if shown == default else default, note))
  other = ' other' if rows else ''
  where = f'every{other} environment' if env == preset_choice.OTHERS else user_file.title(env)
  lines = [f'preset {name}, {where}']
  lines += _table([('option', 'value', 'default', ''), *rows]) if rows else ['  sets nothing']
  if estimates.expected(config):
    learning, indent = estimates.describe(config), '  '
    lines += textwrap.wrap(learning, _WIDTH, initial_indent=indent, subsequent_indent=indent)
  return '\n'.join(lines)


def _table(rows: Sequence[tuple[str, str, str, str]]) -> Iterator[str]:
  """Yields the lines of an aligned table, indented; the last column is wrapped."""
  cells = [([option], _broken(value), _broken(default)) for option, value, default, _ in rows]
  widths = [max(len(line) for row in cells for line in row[i]) for i in range(3)]
  left = _WIDTH - sum(widths) - 2 * 4
  for row, (*_, note) in zip(cells, rows, strict=True):
    columns = [*row, textwrap.wrap(note, left)]
    for i in range(max(map(len, columns))):
      words = [column[i] if i < len(column) else '' for column in columns]
      line = '  '.join(word.ljust(width) for word, width in zip(words, [*widths, 0], strict=True))
      yield f'  {line}'.rstrip()


def _broken(value: str) -> list[str]:
  """Returns a value in lines of at most _VALUE_WIDTH, broken at its commas."""
  lines = ['']
  for part in value.replace(',', ',\0').split('\0'):
    if lines[-1] and len(lines[-1]) + len(part) > _VALUE_WIDTH:
      lines.append('')
    lines[-1] += part
  return lines


def _with_family(modules: Mapping[str, Any], env: str) -> dict[str, Any]:
  """Returns the programs that have environments of this family; a task is not looked up.

  Raises:
    ValueError: if none has; one sentence.
  """
  family = env.partition(':')[0]
  families = {title: module.environments.families() for title, module in modules.items()}
  having = {title: modules[title] for title in modules if family in families[title]}
  if having or user_file.is_spec(env):
    return having or dict(modules)
  known = sorted({name for names in families.values() for name in names})
  raise ValueError(
    f'--env={env}: there is no environment family {family!r}{errors.did_you_mean(family, known)} (the '
    f'families are {", ".join(known)}).'
  )


def _with_agent(modules: Mapping[str, Any], given: Mapping[str, Any]) -> list[tuple[str, Any, str]]:
  """Returns title, module and agent of each program with each of its agents, or with --agent.

  Raises:
    ValueError: if no program has that agent; one sentence.
  """
  every = [
    (title, module, a) for title, module in modules.items() for a in agent_choice.variants(module)
  ]
  if 'agent' not in given:
    return every
  known = sorted({agent for *_, agent in every if agent})
  if given['agent'] not in known:
    there = f'there are: {", ".join(known)}' if known else 'leave it out'
    raise ValueError(f'--agent={given["agent"]} is not an agent that can be chosen here; {there}.')
  return [one for one in every if one[2] == given['agent']]


def _check_flags(found: Sequence[tuple[str, Any, str]], given: Mapping[str, Any]) -> None:
  """Raises ValueError, one sentence, for a flag that no agent of a program has."""
  known = {name for _, module, a in found for name in _options(agent_choice.variants(module)[a])}
  titles = ', '.join(dict.fromkeys(f'--program={title}' for title, *_ in found))
  for name in given:
    if name not in known:
      raise ValueError(f'--{name} is not an option of {titles}; leave it out.')


def _options(variant: agent_choice.Variant) -> set[str]:
  return set(options.flatten(variant.defaults))
