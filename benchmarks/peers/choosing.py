"""The systems that a comparison runs, by what the user asks for."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.peers import best, settings
from benchmarks.peers.settings import Settings
from benchmarks.peers.systems import PEERS, Peer

# Peers that no package has.
SCRIPTED = [name for name, peer in PEERS.items() if peer.script and peer.side_by_side]


def names(
  asked: Sequence[str], scripts: Mapping[str, str], best_settings: bool, given: Mapping[str, Any]
) -> list[str]:
  """Returns the names of the runs of a turn: systems, and systems at their best settings.

  Args:
    asked: the systems; if empty, ours and all peers of the environment that are packages.
    scripts: the user's copies of peers, which are compared as well.
    best_settings: whether each system that has them also runs at its best settings.
    given: the options that the user set.

  Raises:
    ValueError: a system is unknown or cannot be compared; one sentence.
  """
  made = settings.make(given)
  for name, path in scripts.items():
    _check_script(name, path)
  _check_asked(asked, scripts)
  ours = settings.OURS if made.env == 'cartpole' else settings.WITH_ACTORS
  chosen = [*asked] or [*ours, *_packages(made)]
  chosen += [name for name in scripts if name not in chosen]
  for name in chosen:
    if name in PEERS:
      _check(name, made)
    elif name not in ours:
      raise ValueError(f'--systems={name} is for --env=cartpole; leave it out.')
  if not best_settings:
    return chosen
  if made.env != 'cartpole':
    raise ValueError('--best_settings is for --env=cartpole; leave it out.')
  return chosen + [best.named(name) for name in chosen if name in best.BEST]


def left_out(chosen: Sequence[str], made: Settings) -> list[str]:
  """Returns the peers of the environment that --scripts could add to the chosen runs."""
  return [name for name in SCRIPTED if name not in chosen and _plays(PEERS[name], made)]


def _check_script(name: str, path: str) -> None:
  if name not in SCRIPTED:
    raise ValueError(f'--scripts={name}=PATH is of none of {", ".join(SCRIPTED)}.')
  wanted = PEERS[name].script
  if os.path.isdir(path) != (wanted == 'checkout'):
    kind = 'directory of a checkout' if wanted == 'checkout' else f'file {wanted}'
    raise ValueError(f'--scripts={name}={path} must be the path of the {kind}.')


def _check_asked(asked: Sequence[str], scripts: Mapping[str, str]) -> None:
  known = [*settings.OURS, *(name for name, peer in PEERS.items() if peer.side_by_side)]
  for name in asked:
    if name not in known:
      raise ValueError(f'--systems={name} is none of {", ".join(sorted(known))}.')
    if name in SCRIPTED and name not in scripts:
      raise ValueError(
        f'--systems={name} needs --scripts={name}=PATH, the path of its {PEERS[name].script}.'
      )
  if len(set(asked)) != len(asked):
    raise ValueError(f'--systems={",".join(asked)} names one twice; name each once.')


def _check(name: str, made: Settings) -> None:
  peer = PEERS[name]
  if made.torso not in peer.torsos:
    raise ValueError(
      f'--env={made.env} with the torso {made.torso} is not for {name}, whose torsos are '
      f'{", ".join(peer.torsos)}; leave {name} out, or change the environment.'
    )
  if made.continuous and not peer.continuous:
    raise ValueError(
      f'--env={made.env} has continuous actions, which the driver of {name} has not; leave it out.'
    )
  environments = made.num_actors * made.envs_per_actor
  if peer.whole_batches and environments % made.batch_size:
    raise ValueError(
      f'--batch_size={made.batch_size} does not divide the {environments} environments, of each of '
      f'which {name} learns from one unroll at a time; change it, or leave {name} out.'
    )


def _plays(peer: Peer, made: Settings) -> bool:
  return made.torso in peer.torsos and (peer.continuous or not made.continuous)


def _packages(made: Settings) -> list[str]:
  return [
    name
    for name, peer in PEERS.items()
    if peer.side_by_side and not peer.script and _plays(peer, made)
  ]
