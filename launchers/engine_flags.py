"""The flags of launch.py that choose an engine: --launcher, and one for each option of each engine."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from absl import flags

from launchers import engines, options
from launchers.engine import Engine

_LAUNCHER = flags.DEFINE_enum(
  'launcher',
  'local',
  [*engines.TABLE],
  'where the program runs: local: this machine; ray: a Ray cluster; slurm: a Slurm job; k8s: writes '
  'Kubernetes manifests; pod: one node in this pod, used by those manifests; skypilot: writes a job '
  'group for SkyPilot; task: one node on this machine, used by that job group',
)
# Launchpad defines it, with launch types that this repository does not run.
_LAUNCH_TYPE: Any = flags.FLAGS['lp_launch_type']
flags.FLAGS.set_default(_LAUNCH_TYPE.name, 'local_mp')
_WEB = flags.DEFINE_bool(
  'web', False, 'serve a page about the run on 127.0.0.1 until it ends, and print its address'
)
_WEB_PORT = flags.DEFINE_integer(
  'web_port', 0, 'port of the page of --web; 0: a free one', lower_bound=0, upper_bound=65535
)


def _define(engine: type[Engine]) -> None:
  """Defines the flags of an engine, as flags of its module; engines may have some in common."""
  where: dict[str, Any] = {'module_name': engine.__module__}
  for option in options.of(engine).values():
    if option.flag in flags.FLAGS:
      flag = flags.FLAGS[option.flag]
      if flag not in flags.FLAGS.flags_by_module_dict().get(engine.__module__, []):
        flags.FLAGS.register_flag_by_module(engine.__module__, flag)
      continue
    if option.choices:
      flags.DEFINE_enum(option.flag, option.default, [*option.choices], option.help, **where)
    else:
      options.DEFINE[option.kind](option.flag, option.default, option.help, **where)


for _engine in engines.TABLE.values():
  _define(_engine)


def module(launcher: str) -> ModuleType:
  """Returns the module of an engine, whose flags --help lists; that of `Local` if there is none."""
  return sys.modules[engines.TABLE.get(launcher, engines.Local).__module__]


def chosen() -> Engine:
  """Returns the engine that the flags choose, with its options.

  Raises:
    ValueError: an option has an impossible value, or a flag is given that this engine does not have or
      cannot take; one sentence.
  """
  launcher = _LAUNCHER.value
  if launcher != 'local':
    engine = engines.TABLE[launcher]
    if _LAUNCH_TYPE.present:
      raise ValueError(_foreign(_LAUNCH_TYPE.name, 'local'))
  elif _LAUNCH_TYPE.value in engines.LAUNCH_TYPES:
    engine = engines.LAUNCH_TYPES[_LAUNCH_TYPE.value]
  else:
    raise ValueError(
      f'--{_LAUNCH_TYPE.name}={_LAUNCH_TYPE.value} is not supported; use '
      f'{", ".join(engines.LAUNCH_TYPES)}, or --launcher.'
    )
  own = {option.flag: name for name, option in options.of(engine).items()}
  for name, other in engines.TABLE.items():
    for option in options.of(other).values():
      if option.flag not in own and flags.FLAGS[option.flag].present:
        raise ValueError(_foreign(option.flag, name))
  for flag, sentence in engine.refuses.items():
    if flag in flags.FLAGS and flags.FLAGS[flag].present:
      raise ValueError(sentence)
  return engine(**{name: flags.FLAGS[flag].value for flag, name in own.items()})


def _foreign(flag: str, launcher: str) -> str:
  return f'--{flag} is for --launcher={launcher}; leave it out with --launcher={_LAUNCHER.value}.'


def given(*others: str) -> list[str]:
  """Returns the flags that choose where a run runs, and some others, as far as they are given."""
  engine = engines.TABLE[_LAUNCHER.value]
  own = sorted(option.flag for option in options.of(engine).values())
  names = [_LAUNCHER.name, *own, _LAUNCH_TYPE.name, *others]
  return [flags.FLAGS[n].serialize() for n in names if flags.FLAGS[n].present]


def page_port() -> int | None:
  """Returns the port of the live page that --web asks for, 0 for a free one; None for no page.

  Raises:
    ValueError: --web_port comes without --web; one sentence.
  """
  if not _WEB.value and _WEB_PORT.present:
    raise ValueError('--web_port is for --web; add it.')
  return _WEB_PORT.value if _WEB.value else None
