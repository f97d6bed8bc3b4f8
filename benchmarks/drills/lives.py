"""The processes of a run's nodes over time, and which of them a drill killed."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass
class Life:
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


class Lives:
  """Tracks the processes of the nodes, and which of them the drill killed."""

  def __init__(self) -> None:
    self.latest: dict[str, Life] = {}
    self.all: list[Life] = []

  def see(self, pids: dict[str, int], seconds: float) -> list[Life]:
    """Records the current processes.

    Args:
      pids: process ids, by node.
      seconds: seconds since the drill began.

    Returns:
      The replaced lives that the drill did not kill.
    """
    surprises = []
    for node, pid in pids.items():
      before = self.latest.get(node)
      if before is None or before.pid != pid:
        number = before.number + 1 if before else 0
        self.latest[node] = Life(node, number, pid, seconds)
        self.all.append(self.latest[node])
        if before is not None and before.killed is None:
          surprises.append(before)
    return surprises

  def never_back(self, until: float) -> list[Life]:
    """Returns the lives that the drill killed before `until` and that no other life followed."""
    return [
      life for life in self.latest.values() if life.killed is not None and life.killed < until
    ]


@dataclasses.dataclass
class Seen:
  """Observations of a run.

  Attributes:
    lives: lives of the nodes.
    kills: number of kills.
    surprises: a sentence for each end of a node that the drill did not cause.
    longest_pause: longest time without a new trained unroll, in seconds.
    hours: duration of the run.
    interrupted: why the drill stopped the run; '' if it ended by itself.
  """

  lives: Lives = dataclasses.field(default_factory=Lives)
  kills: int = 0
  surprises: list[str] = dataclasses.field(default_factory=list)
  longest_pause: float = 0.0
  hours: float = 0.0
  interrupted: str = ''
