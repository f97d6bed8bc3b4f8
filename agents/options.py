"""Configs: dataclasses of options, in groups, whose fields declare help texts and value ranges."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

_LARGEST = 2**63 - 1
_MISSING = object()
# Not `def f[C]`: an evaluator under an older Python (--actor_python) imports this module.
C = TypeVar('C')


class Range(NamedTuple):
  """The allowed values of a number; None for no limit."""

  at_least: float | None = None
  at_most: float | None = None
  above: float | None = None
  below: float | None = None

  def __contains__(self, value: object) -> bool:
    assert isinstance(value, int | float)
    return (
      (self.at_least is None or value >= self.at_least)
      and (self.at_most is None or value <= self.at_most)
      and (self.above is None or value > self.above)
      and (self.below is None or value < self.below)
    )

  def __str__(self) -> str:
    """Returns the range in words, after 'set it to'."""
    if self.above is not None:
      lower = f'a number above {self.above}'
      return lower if self.at_most is None else f'{lower} and at most {self.at_most}'
    if self.below is not None:
      return f'a number from {self.at_least} to below {self.below}'
    if self.at_least is None:
      return f'{self.at_most} or less'
    if self.at_most is None:
      return f'{self.at_least} or more'
    return f'a number from {self.at_least} to {self.at_most}'


def option(
  default: Any,
  help: str,
  *,
  at_least: float | None = None,
  at_most: float | None = None,
  above: float | None = None,
  below: float | None = None,
) -> Any:
  """Returns a dataclass field with a default and the help text of the flag that sets it.

  Args:
    default: an int, float, bool, str or tuple of ints; its type is the flag's type.
    help: one sentence: the meaning, the unit, the paper's value where it differs.
    at_least: the smallest allowed value; None for no limit.
    at_most: the largest allowed value; None for no limit.
    above: every allowed value is larger; None for no limit.
    below: every allowed value is smaller; None for no limit.
  """
  allowed = Range(at_least, at_most, above, below)
  metadata = {'help': help, 'allowed': allowed}
  return dataclasses.field(default=default, metadata=metadata)


class Leaf(NamedTuple):
  """One option of a config.

  Attributes:
    group: name of the config's field that holds its group; '' for an option of the config itself.
    name: of the option, which is the name of its flag.
    value: in the config; of a program's default config, the default.
    help, allowed: as `option` has them.
    flag: whether a flag sets it.
    owner: the class that declares it.
  """

  group: str
  name: str
  value: Any
  help: str
  allowed: Range | None
  flag: bool
  owner: type


def leaves(config: Any) -> Iterator[Leaf]:
  """Yields the options of a config, those of its groups included, in the order of their declaration.

  A *config* is a dataclass whose fields are groups of options, dataclasses themselves, or options. A
  group is a config without groups.

  Args:
    config: an instance, whose groups decide which options there are.
  """
  for field in dataclasses.fields(config):
    value = getattr(config, field.name)
    if _is_group(config, field):
      for inner in dataclasses.fields(value):
        yield _leaf(field.name, value, inner)
    elif value is not None or _is_declared(config, field):
      yield _leaf('', config, field)


def value(config: Any, name: str, default: Any = _MISSING) -> Any:
  """Returns the value of one option of a config, by the name of its flag.

  Raises:
    KeyError: there is no such option, and no default is given.
  """
  for leaf in leaves(config):
    if leaf.name == name:
      return leaf.value
  if default is _MISSING:
    raise KeyError(name)
  return default


def flatten(config: Any) -> dict[str, Any]:
  """Returns the options of a config by name, as flags and config.json have them."""
  return {leaf.name: leaf.value for leaf in leaves(config)}


def replace(config: C, **values: Any) -> C:  # noqa: UP047
  """Returns a config with other values of some options, whichever groups have them.

  Raises:
    TypeError: there is no such option.
  """
  groups = {leaf.name: leaf.group for leaf in leaves(config)}
  changed: dict[str, dict[str, Any]] = {}
  for name, given in values.items():
    if name not in groups:
      raise TypeError(f'{type(config).__name__} has no option {name!r}')
    changed.setdefault(groups[name], {})[name] = given
  own = changed.pop('', {})
  for group, inner in changed.items():
    own[group] = dataclasses.replace(getattr(config, group), **inner)
  holder: Any = config
  changed_config: C = dataclasses.replace(holder, **own)
  return changed_config


def make(config: type[C], **values: Any) -> C:  # noqa: UP047
  """Returns the default config of a class with other values of some options."""
  return replace(config(), **values)


def _is_group(config: Any, field: dataclasses.Field) -> bool:
  # An option may have a value of the user's own class, such as a torso.
  is_dataclass = dataclasses.is_dataclass(getattr(config, field.name))
  return is_dataclass and not _is_declared(config, field)


def _is_declared(config: Any, field: dataclasses.Field) -> bool:
  _, metadata = _declaration(type(config), field.name)  # type: ignore[arg-type]
  return bool(metadata)


@functools.cache
def _declaration(config: type, name: str) -> tuple[type, Mapping[str, Any]]:
  """Returns the class that declares an option of a config's class, and what `option` has noted.

  A class may give an inherited option another default, as in `num_envs: int = 16`, and nothing else.
  """
  owner = config
  (declared,) = (field for field in dataclasses.fields(config) if field.name == name)
  for cls in config.__mro__:
    found = vars(cls).get('__dataclass_fields__', {}).get(name)
    if found is not None and (found is declared or not declared.metadata):
      owner, declared = cls, found
  return owner, declared.metadata


def _leaf(group: str, config: Any, field: dataclasses.Field) -> Leaf:
  owner, metadata = _declaration(type(config), field.name)  # type: ignore[arg-type]
  return Leaf(
    group,
    field.name,
    getattr(config, field.name),
    metadata.get('help', ''),
    metadata.get('allowed'),
    metadata.get('flag', True),
    owner,
  )


class CheckedOptions:
  """A config or a group, in which each class of the MRO checks its own options in `_check`."""

  def validate(self) -> None:
    """Checks the range of every number, then every group, then what `_check` of each class relates.

    A class with options defines `_check(self) -> None`, without calling `super()`; those of base
    classes come first.

    Raises:
      ValueError: one sentence that names the flag and the fix.
    """
    check_numbers(self)
    for field in dataclasses.fields(self):  # type: ignore[arg-type]
      group = getattr(self, field.name)
      if _is_group(self, field) and isinstance(group, CheckedOptions):
        group.validate()
    for cls in reversed(type(self).__mro__):
      if '_check' in vars(cls):
        vars(cls)['_check'](self)

  def _require_default(self, needed: str, *names: str) -> None:
    """Raises ValueError for the first option that is not as by default, if it needs another one."""
    for field in dataclasses.fields(self):  # type: ignore[arg-type]
      if field.name in names and (value := getattr(self, field.name)) != field.default:
        raise ValueError(
          f'--{field.name}={value} has no effect without {needed}; leave it out, or add that.'
        )


def check_numbers(config: Any) -> None:
  """Checks the range of every number of a config.

  An int must fit in 64 bits. A float must be finite unless its default is not. A number must be in the
  range that its option sets.

  Raises:
    ValueError: one sentence that names the flag and the fix.
  """
  for leaf in leaves(config):
    value = leaf.value
    if isinstance(value, bool) or not isinstance(value, int | float):
      continue
    said = f'--{leaf.name} is {value!r}: set it to'
    if isinstance(value, int):
      if abs(value) > _LARGEST:
        raise ValueError(f'--{leaf.name} has more than 64 bits: set it to {_LARGEST} or less.')
    elif not math.isfinite(value) and not _is_infinite(leaf):
      raise ValueError(f'{said} a finite number.')
    if leaf.allowed is not None and value not in leaf.allowed:
      raise ValueError(f'{said} {leaf.allowed}.')


def require_devices(name: str, devices: Sequence[int]) -> None:
  """Raises ValueError, one sentence, unless an option lists distinct devices."""
  if not devices or len(set(devices)) != len(devices) or min(devices) < 0:
    raise ValueError(f'--{name} must list distinct device numbers, such as 0,1.')


def _is_infinite(leaf: Leaf) -> bool:
  default = getattr(leaf.owner, leaf.name, 0.0)
  return isinstance(default, float) and not math.isfinite(default)
