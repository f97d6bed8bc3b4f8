"""The processes of a run's nodes over time, and which of them a drill killed."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass
class Incarnation:
  """One process of a node.

  Attributes:
    node: such as 'actor-0'.
    number: number of earlier processes of the node.
    pid: process id.
    began: seconds of the drill at which the process was first seen.
    killed: seconds of the drill at which the drill killed the process; None if it did not.
  """

  node: str
  number: int
  pid: int
  began: float
  killed: float | None = None


class Incarnations:
  """Tracks the processes of the nodes, and which of them the drill killed."""

  def __init__(self) -> None:
    self.latest: dict[str, Incarnation] = {}
    self.all: list[Incarnation] = []

  def see(self, pids: dict[str, int], seconds: float) -> list[Incarnation]:
    """Records the current processes.

    Args:
      pids: process ids, by node.
      seconds: seconds since the drill began.

    Returns:
      The replaced incarnations that the drill did not kill.
    """
    surprises = []
    for node, pid in pids.items():
      before = self.latest.get(node)
      if before is None or before.pid != pid:
        number = before.number + 1 if before else 0
        self.latest[node] = Incarnation(node, number, pid, seconds)
        self.all.append(self.latest[node])
        if before is not None and before.killed is None:
          surprises.append(before)
    return surprises

  def never_back(self, until: float) -> list[Incarnation]:
    """Returns the incarnations that the drill killed before `until` and that no other followed."""
    return [
      each for each in self.latest.values() if each.killed is not None and each.killed < until
    ]


@dataclasses.dataclass
class Seen:
  """Observations of a run.

  Attributes:
    incarnations: those of the nodes.
    kills: number of kills.
    surprises: a sentence for each end of a node that the drill did not cause.
    longest_pause: longest time without a new trained unroll, in seconds.
    hours: duration of the run.
    interrupted: why the drill stopped the run; '' if it ended by itself.
  """

  incarnations: Incarnations = dataclasses.field(default_factory=Incarnations)
  kills: int = 0
  surprises: list[str] = dataclasses.field(default_factory=list)
  longest_pause: float = 0.0
  hours: float = 0.0
  interrupted: str = ''
