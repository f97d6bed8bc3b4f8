"""Requests of actors and evaluators to an inference server."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence

import numpy as np
import tree
from acme import specs

from agents.types import FIRST, LAST, MID, Timestep
from environments import nests
from nodes.inference import codec
from nodes.inference.env_groups import EnvGroup
from nodes.inference.in_process import Message
from nodes.inference.layout import EnvGroupSpec
from nodes.inference.socket_server import Connection
from nodes.runtime import lifecycle

_STEP_TYPES = bytes([FIRST, MID, LAST])
_ONE = np.float32(1).tobytes()


class Refused(ValueError):
  """An invalid request; the message is one sentence for its sender."""


@dataclasses.dataclass(eq=False)
class Request:
  """The timestep of an environment group and the connection for its reply.

  Attributes:
    env_group: the group that sent it.
    incarnation: identifies the actor's incarnation.
    sequence: index of the request in that incarnation of the group, from 0.
    timestep: fields are `[N, ...]`.
    connection: the connection of the request or of its latest retry.
    game_over: bool `[N]`, of the environments; see `BatchedEnvironment`.
  """

  env_group: EnvGroup
  incarnation: int
  sequence: int
  timestep: Timestep
  connection: Connection
  game_over: np.ndarray | None = None

  @property
  def rows(self) -> int:
    """The number of environments N."""
    return self.env_group.spec.num_envs

  @property
  def first_slot(self) -> int:
    """The first of its environments' slots on the actor device."""
    return self.env_group.first_slot

  @property
  def needs_reset(self) -> bool:
    """Whether this is its incarnation's first request, which resets the core states."""
    return self.env_group.needs_reset

  @property
  def key(self) -> tuple[int, int]:
    """Identifies the request; a retry has the same key."""
    return self.incarnation, self.sequence


class RequestDecoder:
  """Decodes and validates requests.

  Attributes:
    max_bytes: upper bound on the size of a valid message.
  """

  def __init__(self, env_groups: Iterable[EnvGroup], environment_spec: specs.EnvironmentSpec):
    """Initialises the decoder.

    Args:
      env_groups: the groups that send requests.
      environment_spec: of one environment.
    """
    self._observation = environment_spec.observations
    self._nested = tree.is_nested(self._observation)
    declared = dict.fromkeys(Timestep._fields[:3], specs.Array((), np.float32))
    declared['step_type'] = specs.Array((), np.uint8)
    declared |= nests.named(self._observation, 'observation')
    self._names = list(declared)
    self._declared = [(tuple(spec.shape), np.dtype(spec.dtype)) for spec in declared.values()]
    self._floats = [i for i, (_, dtype) in enumerate(self._declared) if i > 2 and dtype.kind == 'f']
    self._run = lifecycle.run_token()
    self._env_groups = {(each.spec.actor_id, each.spec.group): each for each in env_groups}
    row = sum(dtype.itemsize * math.prod(shape) for shape, dtype in self._declared)
    most = max(each.spec.num_envs for each in self._env_groups.values())
    self.max_bytes = most * (row + 1) + (1 << 16)

  def unpack(self, message: bytes | Message, connection: Connection) -> Request:
    """Returns the request in a message.

    Raises:
      Refused: if its environment group is unknown, or an array has the wrong shape, dtype or invalid
        values.
      Exception: if the message is not a request, or comes from another run.
    """
    values = codec.unpack(message, connection.memory) if isinstance(message, bytes) else message
    run, actor_id, incarnation, group, sequence, *arrays = values
    if run != self._run:
      raise ValueError('it comes from another run or from no run')
    env_group = self._env_groups.get((actor_id, group))
    if env_group is None:
      raise Refused(f'no environments were declared for {actor_id!r}, group {group}.')
    if sequence < 0:
      raise ValueError('its sequence number is negative')
    count = len(self._declared)
    leaves, games = arrays[:count], arrays[count:]
    if self._nested and len(leaves) < count:
      raise Refused(
        f'{actor_id} sent {len(leaves)} arrays, but its environment was declared with '
        f'{", ".join(self._names)}.'
      )
    self._check(env_group.spec, leaves)
    if games and (
      len(games) > 1 or games[0].dtype != bool or games[0].shape != (env_group.spec.num_envs,)
    ):
      raise Refused(f'{actor_id} sent a game_over that is not bool[{env_group.spec.num_envs}].')
    fields = nests.fields_of(self._observation, leaves) if self._nested else leaves
    timestep = Timestep(*fields)
    return Request(env_group, int(incarnation), int(sequence), timestep, connection, *games)

  def _check(self, spec: EnvGroupSpec, leaves: Sequence[np.ndarray]) -> None:
    for name, value, (row, dtype) in zip(self._names, leaves, self._declared, strict=True):
      if value.shape != (spec.num_envs, *row) or value.dtype != dtype:
        raise Refused(
          f'{spec.actor_id} sent {name} as {value.dtype}{list(value.shape)}, but its environment was '
          f'declared with {dtype}{[spec.num_envs, *row]}.'
        )
    step_type, reward, discount, *_ = leaves
    wrong = ''
    if step_type.tobytes().strip(_STEP_TYPES):
      wrong = 'a step_type that is none of 0, 1 and 2'
    # Nearly always all are 1, and comparing bytes is ten times cheaper than comparing numbers.
    elif discount.tobytes() != _ONE * spec.num_envs and not _in_unit_interval(discount):
      wrong = 'a discount that is not between 0 and 1'
    elif not np.isfinite(reward).all():
      wrong = 'a reward that is not finite'
    else:
      for i in self._floats:
        if not np.isfinite(leaves[i]).all():
          wrong = f'{self._names[i]} with a value that is not finite'
    if wrong:
      raise Refused(f'an environment of {spec.actor_id} returned {wrong}.')


def _in_unit_interval(values: np.ndarray) -> bool:
  return bool(((values >= 0) & (values <= 1)).all())
