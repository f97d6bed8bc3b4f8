"""Starts a learner with the parameters of another run, which launch.py puts into the run directory."""

from __future__ import annotations

from typing import Any

from absl import logging

from agents.agent import Agent
from agents.networks.statistics import RETURNS
from agents.types import Nest
from nodes.learning import serialisation
from rundir import saved_params
from rundir.saved_params import SavedParams


def with_initial_params(agent: Agent, state: Any, run_dir: str) -> Any:
  """Returns a new learner state with the parameters that its run begins with.

  They include the statistics of normalisation. Counters and the optimizer's state stay new.

  Args:
    agent: the agent.
    state: as returned by its `init`, as NumPy arrays.
    run_dir: the run directory; see `saved_params.has_initial`.

  Raises:
    ValueError: if the parameters belong to a different network; one sentence.
  """
  saved = saved_params.read_initial(run_dir)
  state = agent.with_params(state, fitting(saved, state.params))
  logging.info('starting with the parameters of %s', saved.path)
  return state


def fitting(saved: SavedParams, template: Nest, advice: str = serialisation.RESUME) -> Nest:
  """Returns the parameters of another run, as `serialisation.params` does.

  The statistics of returns are new where the other run has counted none, as in imitation.
  """
  return serialisation.params(saved, template, advice, new=(RETURNS,))
