"""Sebulba with other names for all of its groups, as a user may choose them: a program in a file."""

import dataclasses
import re

from launchers.program import Program
from programs import sebulba

NAMES = {
  'actor': 'player',
  'evaluator': 'judge',
  'inference': 'server',
  'inference_learner': 'trainer',
  'learner': 'trainer',
  'monitor': 'scribe',
  'replay': 'memory',
}
_NODE = re.compile(f'({"|".join(NAMES)})(/[0-9]+)')
PRESETS = sebulba.PRESETS
make_agent = sebulba.make_agent


@dataclasses.dataclass(frozen=True)
class Config(sebulba.Config):
  """The options of Sebulba."""


class Names(list):
  """Names of nodes, which are changed as they are added."""

  def append(self, name):
    super().append(renamed(name))


class Renamed(Program):
  """Takes other names than it is given, for the groups and in the arguments of the nodes."""

  def __init__(self, name):
    super().__init__(name)
    self.evaluators = Names()

  def group(self, label, **declared):
    return super().group(NAMES[label], **declared)

  def add_node(self, node, label=None, **declared):
    node._args, node._kwargs = renamed(node._args), renamed(node._kwargs)
    return super().add_node(node, label and NAMES[label], **declared)


def renamed(value):
  """Returns a value in which the names of nodes are changed."""
  if isinstance(value, str):
    found = _NODE.fullmatch(value)
    return NAMES[found[1]] + found[2] if found else value
  if isinstance(value, dict):
    return {name: renamed(each) for name, each in value.items()}
  if hasattr(value, '_fields'):
    return type(value)(*map(renamed, value))
  if type(value) in (list, tuple):
    return type(value)(map(renamed, value))
  if dataclasses.is_dataclass(value) and not isinstance(value, type):
    fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    changed = {name: renamed(each) for name, each in fields.items()}
    return value if changed == fields else dataclasses.replace(value, **changed)
  return value


def make_program(config):
  given, sebulba.Program = sebulba.Program, Renamed
  try:
    return sebulba.make_program(config)
  finally:
    sebulba.Program = given


def placement(config):
  return {NAMES[label]: resources for label, resources in sebulba.placement(config).items()}
