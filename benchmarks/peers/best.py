"""Each system's own best settings on CartPole, on a machine of two cores."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from benchmarks.peers import settings
from benchmarks.peers.settings import Settings

_SUFFIX = '_best'


@dataclasses.dataclass(frozen=True)
class Best:
  """What replaces the common settings.

  Attributes:
    sizes: options of `settings.COMMON`, by name.
    own: options of this system only: flags of our programs, settings of a peer's driver.
    besides: what else differs by them, in words; '' for nothing.
  """

  sizes: Mapping[str, Any]
  own: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  besides: str = ''


BEST = {
  'sebulba': Best(
    {'num_actors': 2, 'envs_per_actor': 1024, 'batch_size': 512},
    {'inference_nodes': 1, 'actors_as_threads': True},
  ),
  'impala': Best({'num_actors': 2, 'envs_per_actor': 512, 'batch_size': 256}),
  'cleanrl': Best({'num_actors': 1, 'envs_per_actor': 512, 'batch_size': 128}),
  'stoix': Best({'num_actors': 2, 'envs_per_actor': 128, 'batch_size': 64}),
  'pufferlib': Best(
    {'num_actors': 1, 'envs_per_actor': 2048, 'unroll_length': 64, 'batch_size': 512},
    {'own_training': True, 'threads': 2},
    "its own optimiser, Muon, and PufferLib's defaults in place of the common discount, learning rate, "
    'costs and norm of gradients',
  ),
}


def named(system: str) -> str:
  """Returns the name of a system's runs at its best settings."""
  return system + _SUFFIX


def system(name: str) -> str:
  """Returns the system of a name, at the common or at its best settings."""
  return name.removesuffix(_SUFFIX)


def options(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
  """Returns the options of a run: the given ones, and at the best settings those over them."""
  best = _of(name)
  return {**given, **best.sizes, **best.own}


def common(name: str, given: Mapping[str, Any]) -> Settings:
  """Returns the common settings, at the best settings with a run's own sizes.

  Raises:
    ValueError: see `settings.make`.
  """
  return settings.make({**given, **_of(name).sizes})


def lines(name: str) -> tuple[str, ...]:
  """Returns what differs from the same system's run at the common settings; () if this is that run."""
  replaced = options(name, {})
  if not replaced:
    return ()
  shown = ', '.join(f'{option}={value}' for option, value in replaced.items())
  besides = _of(name).besides
  return (f'as {system(name)}, with {shown}', *([besides] if besides else []))


def _of(name: str) -> Best:
  return Best({}) if name == system(name) else BEST[system(name)]
