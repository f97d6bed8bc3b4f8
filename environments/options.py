"""The value of --env_options, 'key=value,key=value', as arguments of a factory or a constructor."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from environments import errors

_TYPES = (bool, int, float, str)
_NAMES = {kind.__name__: kind for kind in _TYPES}
_TYPE_NAMES = 'a bool, an int, a float or a text'
_MOST = 2**31 - 1
_BOOLS = {'true': True, '1': True, 'yes': True, 'false': False, '0': False, 'no': False}
# Defaults of parameters that an option may set.
_GIVEN = (*_TYPES, type(None), type(inspect.Parameter.empty))


def merge(options: str, changes: str) -> str:
  """Returns options with changes to some of them; both are 'key=value,key=value', as the result is.

  It checks nothing: `texts` rejects what is malformed.
  """
  changed = _items(changes)
  keys = {_key(item) for item in changed}
  return ','.join([*(item for item in _items(options) if _key(item) not in keys), *changed])


def texts(options: str) -> dict[str, str]:
  """Returns the values by key.

  Raises:
    ValueError: an option is malformed or given twice; one sentence.
  """
  found: dict[str, str] = {}
  for item in _items(options):
    key, equals, text = (part.strip() for part in item.partition('='))
    if not equals or not key:
      raise ValueError(f'--env_options={item}: write it as key=value, with commas between options.')
    if key in found:
      raise ValueError(f'--env_options={key} is given twice; keep one of them.')
    found[key] = text
  return found


def of_factory(family: str, factory: Callable[..., Any], options: str) -> dict[str, Any]:
  """Returns the keyword-only arguments of a factory: its defaults, updated from `options`.

  A factory with `**keywords` gets every other option too, as text if they are annotated with str, and
  else in the type that the text looks like.

  Args:
    family: names the factory in errors.
    factory: as in `environments.registry`.
    options: 'key=value,key=value'.

  Raises:
    ValueError: a parameter has no default, or an option is unknown or has no value of its type; one
      sentence.
  """
  parameters = inspect.signature(factory).parameters.values()
  defaults = {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}
  taken = {p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD}
  others = [p for p in parameters if p.kind is p.VAR_KEYWORD]
  for key, default in defaults.items():
    if default is inspect.Parameter.empty:
      raise ValueError(
        f'--env={family}: the parameter {key} has no default; give it {_TYPE_NAMES}.'
      )
  parsed: dict[str, Any] = {}
  for key, text in texts(options).items():
    if key in defaults:
      parsed[key] = _converted(key, text, defaults[key])
    elif others and key not in taken:
      parsed[key] = text if others[0].annotation in (str, 'str') else _guessed(text)
    else:
      raise ValueError(
        f'--env_options={key}: {family} has no such option{errors.did_you_mean(key, defaults)} '
        f'(its options and their defaults: {_listed(defaults)}).'
      )
  return defaults | parsed


def of_constructor(
  name: str,
  constructor: Callable[..., Any],
  given: Mapping[str, str],
  registered: Mapping[str, Any],
  ours: Mapping[str, Any],
  hidden: Collection[str] = (),
) -> dict[str, Any]:
  """Returns texts as keyword arguments of a constructor that is not of this repository.

  The type of a value is that of the registered value or of the annotation, else that of the default.
  A constructor that takes any keyword gets an unknown one in the type that the text looks like.

  Args:
    name: of the environment, for errors.
    constructor: a class or function. Parameters that `**keywords` pass on to a base class count too.
    given: the texts by option.
    registered: arguments that the environment is registered with.
    ours: options of the factory and their defaults, for errors.
    hidden: parameters that are no options.

  Raises:
    ValueError: an option is unknown, or has no value of its type; one sentence.
  """
  parameters, takes_any = _parameters(constructor)
  known = {key: p for key, p in parameters.items() if key not in hidden}
  arguments = {}
  for key, text in given.items():
    if key in known:
      arguments[key] = _argument(name, text, known[key], registered)
    elif takes_any and key not in hidden:
      arguments[key] = _guessed(text)
    else:
      theirs = {k: registered.get(k, p.default) for k, p in known.items()}
      theirs = {k: value for k, value in theirs.items() if isinstance(value, _GIVEN)}
      raise ValueError(
        f'--env_options={key}: {name} has no such option'
        f'{errors.did_you_mean(key, [*theirs, *ours])} (the options of its constructor and their '
        f'defaults: {_listed(theirs)}; of every {name.partition(":")[0]} environment: {_listed(ours)}).'
      )
  return arguments


def _parameters(constructor: Callable[..., Any]) -> tuple[dict[str, inspect.Parameter], bool]:
  """Returns the named parameters of a constructor, and whether it takes any keyword."""
  found: dict[str, inspect.Parameter] = {}
  for i, parameters in enumerate(_signatures(constructor)):
    for p in parameters:
      # A class gives its bases what they require.
      if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY) and not (i and p.default is p.empty):
        found.setdefault(p.name, p)
    if not any(p.kind is p.VAR_KEYWORD for p in parameters):
      return found, False
  return found, True


def _signatures(constructor: Callable[..., Any]) -> Iterator[list[inspect.Parameter]]:
  """Yields the parameters of a function; those of a class and then of its bases, without `self`."""
  if not isinstance(constructor, type):
    yield [*inspect.signature(constructor).parameters.values()]
    return
  for kind in constructor.__mro__:
    if kind is not object and '__init__' in vars(kind):
      yield [*inspect.signature(vars(kind)['__init__']).parameters.values()][1:]


def _argument(
  name: str, text: str, parameter: inspect.Parameter, registered: Mapping[str, Any]
) -> Any:
  """Returns the text as a value of a parameter."""
  key, default = parameter.name, registered.get(parameter.name, parameter.default)
  kinds = _kinds(parameter.annotation)
  if default is None and text.lower() == 'none':
    return None
  if type(default) is int and float in kinds:
    return _converted(key, text, float(default))
  if type(default) is int and not kinds:
    return _converted(key, text, default if isinstance(_guessed(text), int) else float(default))
  if isinstance(default, _TYPES):
    return _converted(key, text, default)
  if kinds:
    numbers = kinds == [int, float]
    return _converted(key, text, kinds[-1]()) if len(kinds) == 1 or numbers else _guessed(text)
  if default is None or default is inspect.Parameter.empty:
    if parameter.annotation is inspect.Parameter.empty:
      return _guessed(text)
    wanted = inspect.formatannotation(parameter.annotation).strip("'")
  else:
    wanted = f'a {type(default).__name__}'
  raise ValueError(
    f'--env_options={key}={text}: {key} of {name} is {wanted}, which no option can be; make the '
    'environment in a factory of your own, see docs/extending.md.'
  )


def _kinds(annotation: Any) -> list[type]:
  """Returns the types that an annotation allows, if all of them are types of options, and None."""
  if annotation is inspect.Parameter.empty:
    return []
  text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
  words = set(re.findall(r'\w+', text)) - {'None', 'NoneType', 'Optional', 'Union', 'typing'}
  return [_NAMES[word] for word in _NAMES if word in words] if words <= _NAMES.keys() else []


def _listed(defaults: Mapping[str, Any]) -> str:
  """Returns options and their defaults as text; of those without a default, the name."""
  named = (
    key if default is inspect.Parameter.empty else f'{key}={default}'
    for key, default in defaults.items()
  )
  return ' '.join(', '.join(named).split()) or 'none'


def _items(options: str) -> list[str]:
  return [stripped for item in options.split(',') if (stripped := item.strip())]


def _key(item: str) -> str:
  return item.partition('=')[0].strip()


def _guessed(text: str) -> Any:
  """Returns the text as the bool, the int or the float that it looks like, else as it is."""
  if text.lower() in ('true', 'false'):
    return _BOOLS[text.lower()]
  for kind in (int, float):
    try:
      return kind(text)
    except ValueError:
      continue
  return text


def _converted(key: str, text: str, default: Any) -> Any:
  """Returns `text` in the type of the default.

  An int must fit in 32 bits, as environments in C++ and JAX count. A float must be finite unless the
  default is not.
  """
  kind = type(default)
  if kind not in _TYPES:
    raise ValueError(
      f'--env_options={key}={text}: the default of {key} has no type that an option can have; make it '
      f'{_TYPE_NAMES}.'
    )
  try:
    value = _BOOLS[text.lower()] if kind is bool else kind(text)
  except (KeyError, ValueError):
    wanted = {bool: 'true or false', int: 'an integer', float: 'a number'}[kind]
    raise ValueError(f'--env_options={key}={text}: {key} must be {wanted}.') from None
  if kind is int and abs(value) > _MOST:
    raise ValueError(f'--env_options={key}={text}: {key} must be at most {_MOST:,}.')
  if kind is float and not math.isfinite(value) and math.isfinite(default):
    raise ValueError(f'--env_options={key}={text}: {key} must be a finite number.')
  return value
