"""A Launchpad program whose groups declare what their nodes do."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import launchpad as lp

from environments import errors
from rundir.roles import ROLES, Role


@dataclasses.dataclass(frozen=True)
class Declared:
  """What the nodes of a group do.

  Attributes:
    roles: of `rundir.roles`.
    sends: what they send, and to nodes of which role.
    receives: what they receive, and from nodes of which role.
  """

  roles: tuple[Role, ...] = ()
  sends: Mapping[str, Role] = dataclasses.field(default_factory=dict)
  receives: Mapping[str, Role] = dataclasses.field(default_factory=dict)


class Program(lp.Program):
  """A Launchpad program in which a group may say what its nodes do, where it is added:

      with program.group('actor', roles=['actor'], sends={'rows': 'inference'}):
        program.add_node(...)

  The launcher records this in `graph.json`, and whatever shows a run looks it up there. What is sent or
  received flows along the handles that one group holds on the other, in whichever direction. A group
  that declares nothing runs as well; views show its processes and its measurements.

  Attributes:
    declared: by the names of the groups.
    evaluators: names of the nodes whose final evaluation the monitor waits for, such as 'evaluator/0'.
  """

  def __init__(self, name: str):
    """Initialises a program without groups."""
    super().__init__(name)
    self.declared: dict[str, Declared] = {}
    self.evaluators: list[str] = []

  @contextlib.contextmanager
  def group(
    self,
    label: str,
    roles: Sequence[Role] = (),
    sends: Mapping[str, Role] | None = None,
    receives: Mapping[str, Role] | None = None,
  ) -> Iterator[None]:
    """Creates a group for nodes that are equal.

    Args:
      label: its name, such as 'actor'.
      roles: what its nodes do, of `rundir.roles`.
      sends: what they send, and to nodes of which role, such as {'rows': 'inference'}.
      receives: what they receive, and from nodes of which role, such as {'batches': 'replay'}.

    Raises:
      ValueError: if there is no such role; one sentence.
    """
    self._declare(label, roles, sends, receives)
    with super().group(label):
      yield

  def add_node(
    self,
    node: lp.PyNode,
    label: str | None = None,
    roles: Sequence[Role] = (),
    sends: Mapping[str, Role] | None = None,
    receives: Mapping[str, Role] | None = None,
  ) -> Any:
    """Adds a node to the current group, or to the group `label`; returns a handle on it.

    Args:
      node: the node.
      label: name of its group; None for that of the `with` statement around the call.
      roles: see `group`.
      sends: see `group`.
      receives: see `group`.

    Raises:
      ValueError: if there is no such role, or no group; one sentence.
    """
    handle = super().add_node(node, label)
    self._declare(label or self._current_group, roles, sends, receives)
    return handle

  def _declare(
    self,
    label: str,
    roles: Sequence[Role],
    sends: Mapping[str, Role] | None,
    receives: Mapping[str, Role] | None,
  ) -> None:
    new = Declared(tuple(roles), dict(sends or {}), dict(receives or {}))
    for role in (*new.roles, *new.sends.values(), *new.receives.values()):
      if role not in ROLES:
        near = errors.did_you_mean(role, ROLES) or f'; there are: {", ".join(ROLES)}.'
        raise ValueError(f'group {label!r}: no role is called {role!r}{near}')
    if new != Declared():
      self.declared[label] = new


def declared(program: lp.Program) -> Mapping[str, Declared]:
  """Returns what each group of a program does; nothing for the groups of a stock Launchpad program."""
  known = getattr(program, 'declared', {})
  return {label: known.get(label, Declared()) for label in program.groups}
