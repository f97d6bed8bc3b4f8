"""What the V-trace agent has of its own: shards, options. test_actor_critic.py has the rest."""

from __future__ import annotations

import pytest

from agents.vtrace.agent import VTrace
from agents.vtrace.config import VTraceConfig
from tests.agents.recording import ACTION_SPEC, OBSERVATION_SPEC
from tests.agents.sharding import check_meshes_do_the_update_of_one_device


@pytest.mark.slow
def test_meshes_of_any_size_do_the_update_of_one_device():
  check_meshes_do_the_update_of_one_device('vtrace', sizes=(4, 6, 7, 8))


@pytest.mark.parametrize(
  ('options', 'message'),
  [
    ({'loss_reduction': 'max'}, r"--loss_reduction is 'max': set it to mean or sum\."),
    ({'vtrace_lambda': 1.5}, r'--vtrace_lambda is 1\.5: set it to a number from 0 to 1\.'),
  ],
)
def test_unusable_options_are_rejected_by_name(options, message):
  with pytest.raises(ValueError, match=f'^{message}'):
    VTrace(VTraceConfig(**options), OBSERVATION_SPEC, ACTION_SPEC)
