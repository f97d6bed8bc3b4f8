"""How far the parameters of peers are apart, and how far synchronous rounds let them drift."""

from __future__ import annotations

import math

import numpy as np

from agents.gossip.graphs import Graph


def matrix(graph: Graph) -> np.ndarray:
  """Returns the matrix P of a synchronous round of the average: X becomes P X. Float64 `[n, n]`."""
  n = len(graph.successors)
  rows = np.eye(n)
  for k, senders in enumerate(graph.predecessors):
    rows[k, list(senders)] = 1.0
  return rows / rows.sum(axis=1, keepdims=True)


def contraction(mixing: np.ndarray) -> float:
  """Returns beta, the factor by which a round shrinks the distance to the mean at least.

  It is the second singular value of a doubly stochastic matrix, such as that of a ring: cos(pi/n).

  Args:
    mixing: `[n, n]`, rows and columns sum to 1.
  """
  n = len(mixing)
  return float(np.linalg.norm(mixing - 1.0 / n, ord=2))


def distance_to_mean(params: np.ndarray) -> float:
  """Returns the Frobenius norm of parameters minus their mean over the peers, `[n, D]`."""
  return float(np.linalg.norm(params - params.mean(axis=0)))


def bound(beta: float, num_peers: int, longest_step: float) -> float:
  """Returns the largest distance to the mean after any number of synchronous rounds.

  All peers begin with the same parameters, and change them before each round by at most
  `longest_step`, L. From distance' <= beta (distance + sqrt(n) L) follows beta sqrt(n) L / (1 - beta);
  compare Assran et al. 2019, proposition 1.

  Args:
    beta: of `contraction`, below 1.
    num_peers: n.
    longest_step: L, the largest Euclidean norm of a peer's change.
  """
  return beta * math.sqrt(num_peers) * longest_step / (1.0 - beta)
