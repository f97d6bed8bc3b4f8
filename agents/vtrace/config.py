"""The options of V-trace. Imports no JAX: launching a program reads only this."""

from __future__ import annotations

import dataclasses

from agents.actor_critic.config import ActorCriticConfig
from agents.networks.config import require_choice
from agents.options import option


@dataclasses.dataclass(frozen=True)
class VTraceConfig(ActorCriticConfig):
  """V-trace actor-critic (Espeholt et al. 2018, "IMPALA")."""

  tunable = (*ActorCriticConfig.tunable, 'vtrace_lambda')

  vtrace_lambda: float = option(
    1.0, 'Lambda in [0, 1] that mixes n-step targets; IMPALA uses 1.', at_least=0, at_most=1
  )
  loss_reduction: str = option(
    'mean',
    'Reduction over the transitions of a batch: mean, or sum as in IMPALA, whose gradient norm and '
    'best learning rate grow with batch size and unroll length.',
  )

  def _check(self) -> None:
    require_choice('loss_reduction', self.loss_reduction, ('mean', 'sum'))
