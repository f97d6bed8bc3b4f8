"""An agent: V-trace that is penalised for leaving the policy which acted."""

import dataclasses

from agents import masked
from agents.options import option
from agents.vtrace.agent import VTrace


class KLPenalty(VTrace):
  @dataclasses.dataclass(frozen=True)
  class Config(VTrace.Config):
    kl_cost: float = option(0.1, 'weight of KL(mu || pi), of the policy mu that acted', at_least=0)

  def loss_of_output(self, output, rows):
    loss, metrics = super().loss_of_output(output, rows)
    log_ratios = self.log_ratios(output, rows)
    kl = masked.reduced(-log_ratios, rows.valid, self._config.loss_reduction)
    return loss + self._config.kl_cost * kl, metrics | {'kl': kl}
