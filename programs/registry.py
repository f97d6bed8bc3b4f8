"""The programs of launch.py: built-in programs by name, and a user's own by its file."""

from __future__ import annotations

import dataclasses
import importlib
from typing import Any

import launchpad as lp

from agents import options
from environments import errors, user_file
from environments import registry as environments
from launchers.options import DEFINE
from launchers.placement import Resources
from programs.launchpad_program import LaunchpadProgram, takes_config
from programs.options import user_torso
from programs.options.common import CommonConfig
from programs.options.inference import InferenceConfig
from programs.user_graph import UserGraph

# A program is a module with these attributes (`UserProgram` provides them for a user's own file):
#   Config: a frozen dataclass.
#   AGENTS: {name: Variant}, for a program that can train several agents, see
#     `programs.options.agent_choice`.
#     The first is the default, of which `Config` and `PRESETS` are.
#   make_agent(config): returns the agent's constructor: it takes the specs of observations and actions.
#   make_program(config) -> lp.Program
#   placement(config) -> {group: Resources}
#   PRESETS: {family, family:task or '*': {option: value or Rule}}, the preset named 'default'
#   NAMED_PRESETS: {name: like PRESETS}, for --preset=name; may be missing
#   check_spec(env, spec): raises ValueError if the agent cannot play an environment for a reason of its
#     own; may be missing
#   environments: has `check(name, options)` and `families()` like `environments.registry`.
PROGRAMS = {
  'anakin': 'programs.anakin',
  'evolution': 'programs.evolution',
  'gala': 'programs.gala',
  'gala_sebulba': 'programs.gala_sebulba',
  'impala': 'programs.impala',
  'intrinsic_rewards': 'programs.intrinsic_rewards',
  'muzero': 'programs.muzero',
  'offline': 'programs.offline',
  'population': 'programs.population',
  'population_sebulba': 'programs.population_sebulba',
  'qt_opt': 'programs.qt_opt',
  'r2d2': 'programs.r2d2',
  'sac': 'programs.sac',
  'sebulba': 'programs.sebulba',
}


def load(name: str) -> Any:
  """Returns the module of a program.

  For path/to/mine.py:make_program that is a `UserProgram` if the function takes a config, else a
  `LaunchpadProgram`.

  Raises:
    ValueError: if the name is unknown, or the user's file is unusable; one sentence.
  """
  if user_file.is_spec(name):
    with user_file.named_by('program'):
      named = user_file.named(name)
      with user_file.kept_directory():  # Paths of the command line are relative to it.
        own = UserProgram if takes_config(named.load()) else LaunchpadProgram
      return own(named)
  if name not in PROGRAMS:
    there = f'; there are: {", ".join(sorted(PROGRAMS))}, and path/to/mine.py:make_program.'
    raise ValueError(f'--program={name} is unknown{errors.did_you_mean(name, PROGRAMS) or there}')
  return importlib.import_module(PROGRAMS[name])


def learns(module: Any) -> bool:
  """Returns whether a program has the options of learning, unlike a user's own Launchpad program."""
  return not isinstance(module, LaunchpadProgram)


def _without_default(name: user_file.Named, option: str) -> ValueError:
  return ValueError(
    f'{name}: the option {option} of Config needs a default of a flag type: bool, int, float, '
    'string or tuple of ints.'
  )


class UserProgram(UserGraph):
  """A user's file with the attributes of a program module; missing ones have defaults.

  Attributes:
    Config: the file's; by default `InferenceConfig`.
    PRESETS, NAMED_PRESETS, CYCLES, make_agent: the file's; by default empty, empty, empty and None.
    environments: the file's; by default `environments.registry`.
  """

  def __init__(self, name: user_file.Named):
    """Imports the file.

    Raises:
      ValueError: one sentence, if the import fails or an option of Config has no flag type.
    """
    super().__init__(name)
    module = self._module
    self.Config = getattr(module, 'Config', InferenceConfig)
    self.PRESETS = getattr(module, 'PRESETS', {})
    self.NAMED_PRESETS = getattr(module, 'NAMED_PRESETS', {})
    self.CYCLES = getattr(module, 'CYCLES', ())
    own = getattr(module, 'environments', environments)
    # A file may have imported the package of this name for itself.
    self.environments = own if hasattr(own, 'check') else environments
    make_agent = getattr(module, 'make_agent', None)
    self.make_agent = make_agent and (lambda config: make_agent(user_torso.carried(config)))
    if not (dataclasses.is_dataclass(self.Config) and issubclass(self.Config, CommonConfig)):
      raise ValueError(
        f'{name}: Config is not a dataclass with the options of every program; make it a subclass of '
        'programs.options.common.CommonConfig or of the Config of another program.'
      )
    for field in dataclasses.fields(self.Config):
      has_default = field.default is not dataclasses.MISSING
      if not has_default and field.default_factory is dataclasses.MISSING:
        raise _without_default(name, field.name)
    for leaf in options.leaves(self.Config()):
      if type(leaf.value) not in DEFINE:
        raise _without_default(name, leaf.name)

  def make_program(self, config: Any) -> lp.Program:
    """Returns the program graph.

    Raises:
      ValueError: one sentence, if the user's function raises or does not return an `lp.Program`.
    """
    return self._built(user_torso.carried(config))

  def placement(self, config: Any) -> dict[str, Resources]:
    """Returns the resources of each group: those of the file, or a CPU worker for every node.

    Raises:
      ValueError: one sentence, if the user's function raises.
    """
    placed = self._placed(config)
    if placed is None:
      return {label: Resources() for label in self.make_program(config).groups}
    return placed
