"""Modules for use within a loop, such as `jax.lax.scan`."""

from __future__ import annotations

import dataclasses
from typing import Any

import flax.linen as nn
import jax


def for_loops[M: nn.Module](module: M) -> M:
  """Returns the module with `looped` true, where it or a module among its fields has such a field.

  Parameters and results are the same, except for rounding: convolutions of such modules are computed as
  `agents.networks.convolution.in_loop` does.
  """

  def changed(value: Any) -> Any:
    return for_loops(value) if isinstance(value, nn.Module) else value

  fields = {x.name: getattr(module, x.name) for x in dataclasses.fields(module) if x.init}
  changes = {
    name: jax.tree.map(changed, value, is_leaf=lambda x: isinstance(x, nn.Module))
    for name, value in fields.items()
    if name not in ('parent', 'name')
  }
  if 'looped' in fields:
    changes['looped'] = True
  return module.clone(**changes)
