"""What the nodes of a group do: declared where a graph adds the group, recorded in `graph.json`.

Everything that looks at a run asks for roles: views, curves, the rules of the bottleneck, exports. Names
of groups and classes are up to whoever writes the graph.
"""

from __future__ import annotations

from typing import Literal, get_args

Role = Literal[
  'actor',
  'inference',
  'learner',
  'evaluator',
  'replay',
  'transform',
  'loader',
  'leaderboard',
  'monitor',
]
# Steps environments that are trained on. Reports the shares of the time in which it steps and waits.
ACTOR: Role = 'actor'
# Computes actions.
INFERENCE: Role = 'inference'
# Updates parameters. Reports the returns of training episodes, and writes checkpoints.
LEARNER: Role = 'learner'
# Plays whole episodes to measure the policy. Reports their returns.
EVALUATOR: Role = 'evaluator'
# Holds the unrolls that learners train on.
REPLAY: Role = 'replay'
# Reads unrolls from one table of replay and writes others to another table.
TRANSFORM: Role = 'transform'
# Fills replay with what was recorded before.
LOADER: Role = 'loader'
# Ranks learners by their scores, and lets the worse continue as the better have.
LEADERBOARD: Role = 'leaderboard'
# Receives the reports of all other nodes. A handle on it carries 'reports'.
MONITOR: Role = 'monitor'

ROLES: tuple[Role, ...] = get_args(Role)

# The groups of runs that were recorded before graphs declared roles, with the classes that they ran.
# Only the run directories of these versions need it; do not add to it.
_EARLIER: dict[str, dict[str, tuple[Role, ...]]] = {
  'actor': {'Actor': (ACTOR,), 'ImpalaActor': (ACTOR, INFERENCE)},
  'inference': {'InferenceNode': (INFERENCE,)},
  'inference_learner': {
    'InferenceLearner': (INFERENCE, LEARNER),
    'GossipInferenceLearner': (INFERENCE, LEARNER),
  },
  'learner': {'LearnerNode': (LEARNER,)},
  'anakin': {'Anakin': (ACTOR, LEARNER)},
  'peer': {'GossipPeer': (ACTOR, LEARNER)},
  'evaluator': {
    'Evaluator': (EVALUATOR,),
    'ImpalaEvaluator': (EVALUATOR, INFERENCE),
    'AnakinEvaluator': (EVALUATOR, INFERENCE),
  },
  'replay': {'ReplayServer': (REPLAY,)},
  'relabeller': {'Relabeller': (TRANSFORM,)},
  'replay_loader': {'ReplayLoader': (LOADER,)},
  'monitor': {'Monitor': (MONITOR,)},
}


def of_earlier_group(label: str, runs: str = '') -> tuple[Role, ...]:
  """Returns the roles of a group of a run whose graph was recorded without roles; () if it is unknown.

  Args:
    label: name of the group.
    runs: name of the class that it ran; '' if no graph was recorded.
  """
  classes = _EARLIER.get(label, {})
  return classes.get(runs, ()) if runs else next(iter(classes.values()), ())
