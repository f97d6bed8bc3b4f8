"""A remark on a run whose final evaluation is far below the returns of its training."""

from __future__ import annotations

import math

from rundir import curves, run_end

_EPISODES = 100
_FEWEST = 20
_STANDARD_ERRORS = 3.0
_SHARE = 0.25


def remark(run_dir: str) -> str:
  """Returns one line if the final evaluation is far below the last training episodes; '' otherwise.

  Far is more than three standard errors of the evaluation, and more than a quarter of the training
  return. Usually the evaluation is above: it has the final parameters, and training explores.
  """
  summary = run_end.read_summary(run_dir) or {}
  evaluation = float(summary.get('evaluator_return', math.nan))
  error = float(summary.get('evaluator_return_stderr', math.nan))
  training, episodes = curves.last_training_return(run_dir, _EPISODES)
  gap = training - evaluation
  if not gap > max(_STANDARD_ERRORS * error, _SHARE * abs(training)) or episodes < _FEWEST:
    return ''
  return (
    f'note: the final evaluation returned {evaluation:.4g}, far below the {training:.4g} of the last '
    f'{episodes:.0f} training episodes. Training samples or explores, and evaluation takes the actions '
    f'that the policy prefers. evaluate.py {run_dir} --sample plays as in training; docs/agents.md '
    'has other reasons, and the agent to try first.'
  )
