"""The systems to compare, by the user's flags."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from absl import flags

from benchmarks.peers import best, scripts, settings
from benchmarks.peers.settings import Settings
from benchmarks.peers.systems import PEERS

_SYSTEMS = flags.DEFINE_list(
  'systems',
  [],
  'systems to compare; if empty, all of the environment that are packages, beside those of --scripts',
)
_SCRIPTS = flags.DEFINE_list(
  'scripts',
  [],
  'paths of peers that no package has, to compare them as well: '
  'cleanrl=path/to/ppo_atari_envpool_xla_jax_scan.py,stoix=path/to/checkout',
)
_BEST = flags.DEFINE_bool(
  'best_settings',
  False,
  'also run each system that has them at its own best settings, as <system>_best; CartPole only',
)


def paths() -> dict[str, str]:
  """Returns the user's copies of peers that no package has, by peer.

  Raises:
    ValueError: one is none of a peer, or does not exist; one sentence.
  """
  found = scripts.parse(_SCRIPTS.value)
  for name in found:
    if name not in _scripted():
      raise ValueError(f'--scripts={name}=PATH is none of {", ".join(sorted(_scripted()))}.')
  return found


def names(given: Mapping[str, Any]) -> list[str]:
  """Returns the names of the runs of a turn: systems, and systems at their best settings.

  Args:
    given: the options that the user set.

  Raises:
    ValueError: a system is unknown or cannot be compared; one sentence.
  """
  made = settings.make(given)
  chosen = _named(_SYSTEMS.value) or [*settings.OURS, *_packages(made)]
  chosen += [name for name in paths() if name not in chosen]
  for name in chosen:
    if name in PEERS:
      _check(name, made)
  if not _BEST.value:
    return chosen
  if made.env != 'cartpole':
    raise ValueError('--best_settings is for --env=cartpole; leave it out.')
  also = [best.named(name) for name in chosen if name in best.BEST]
  for name in also:
    best.common(name, given)
  return chosen + also


def left_out(names: Sequence[str]) -> list[str]:
  """Returns the peers that could be compared as well, if --scripts had their paths."""
  return [name for name in _scripted() if name not in names]


def _named(names: Sequence[str]) -> list[str]:
  known = [*settings.OURS, *(name for name, peer in PEERS.items() if peer.side_by_side)]
  for name in names:
    if name not in known:
      raise ValueError(f'--systems={name} is none of {", ".join(sorted(known))}.')
    if name in _scripted() and name not in paths():
      raise ValueError(
        f'--systems={name} needs --scripts={name}=PATH, the path of its {PEERS[name].script}.'
      )
  if len(set(names)) != len(names):
    raise ValueError(f'--systems={",".join(names)} names one twice; name each once.')
  return list(names)


def _check(name: str, made: Settings) -> None:
  peer = PEERS[name]
  if made.torso not in peer.torsos:
    raise ValueError(
      f'--env={made.env} with the torso {made.torso} is not for {name}, whose torsos are '
      f'{", ".join(peer.torsos)}; leave {name} out, or change the environment.'
    )
  environments = made.num_actors * made.envs_per_actor
  if peer.whole_batches and environments % made.batch_size:
    raise ValueError(
      f'--batch_size={made.batch_size} does not divide the {environments} environments, of each of '
      f'which {name} learns from one unroll at a time; change it, or leave {name} out.'
    )


def _scripted() -> list[str]:
  return [name for name, peer in PEERS.items() if peer.script and peer.side_by_side]


def _packages(made: Settings) -> list[str]:
  return [
    name
    for name, peer in PEERS.items()
    if peer.side_by_side and not peer.script and made.torso in peer.torsos
  ]
