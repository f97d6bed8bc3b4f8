"""The processes of a run's nodes over time, and which of them a drill has killed."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass
class Life:
  """One process of a node.

  Attributes:
    node: such as 'actor-0'.
    number: how many came before it.
    pid: of the process.
    began: when it was first seen, in seconds of the drill.
    killed: when the drill killed it, likewise; None if it did not.
  """

  node: str
  number: int
  pid: int
  began: float
  killed: float | None = None


class Lives:
  """Follows the processes of the nodes, and knows which of them the drill has killed."""

  def __init__(self) -> None:
    self.latest: dict[str, Life] = {}
    self.all: list[Life] = []

  def see(self, pids: dict[str, int], seconds: float) -> list[Life]:
    """Notes which processes there are.

    Args:
      pids: by node.
      seconds: of the drill.

    Returns:
      The lives that ended without the drill's doing, and that others have followed.
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
    """Returns the lives that the drill ended before a time and that none has followed."""
    return [
      life for life in self.latest.values() if life.killed is not None and life.killed < until
    ]


@dataclasses.dataclass
class Seen:
  """What was seen of a run.

  Attributes:
    lives: of its nodes.
    kills: how many.
    surprises: a sentence for each end of a node that the drill did not bring about.
    longest_pause: seconds in which the learner trained on no further unroll, at most.
    hours: that the run took.
    interrupted: why the drill stopped it; '' if it ended by itself.
  """

  lives: Lives = dataclasses.field(default_factory=Lives)
  kills: int = 0
  surprises: list[str] = dataclasses.field(default_factory=list)
  longest_pause: float = 0.0
  hours: float = 0.0
  interrupted: str = ''
