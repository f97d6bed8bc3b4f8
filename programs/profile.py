"""The node that --profile names."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Mapping

import launchpad as lp
from absl import flags

from launchers import profiling
from launchers.engine import Engine
from launchers.placement import Resources
from launchers.program import declared
from rundir.roles import ACTOR, EVALUATOR, MONITOR, REPLAY

_PROFILE = flags.DEFINE_string(
  'profile',
  '',
  'NODE:SECONDS, such as inference_learner/0:5: record a JAX profile of this node in the run directory',
)
# A node that does nothing else does not use JAX.
_WITHOUT_JAX = {ACTOR, EVALUATOR, MONITOR, REPLAY}


def profiled(
  program: lp.Program, placement: Mapping[str, Resources], run_dir: str, engine: Engine
) -> Mapping[str, Resources]:
  """Returns the placement, with what makes the node of --profile record one.

  Raises:
    ValueError: if there is no such node, it does not use JAX, or the engine cannot do it; one sentence.
  """
  given = _PROFILE.value
  if not given:
    return placement
  node, _, text = given.rpartition(':')
  label, _, index = node.partition('/')
  try:
    seconds = float(text)
  except ValueError:
    seconds = math.nan
  if not label or not 0 < seconds < math.inf:
    raise ValueError(
      f'--profile={given} must be like inference_learner/0:5, a node and seconds above 0.'
    )
  group = program.groups.get(label, [])
  if not (index or '0').isdecimal() or int(index or 0) >= len(group) or label not in placement:
    raise ValueError(
      f'--profile={given}: there is no node {node!r}; the groups are {", ".join(program.groups)}.'
    )
  roles = declared(program)[label].roles
  if roles and _WITHOUT_JAX.issuperset(roles):
    raise ValueError(
      f'--profile={given}: {label} does not use JAX; profile it with py-spy, see docs/debugging.md.'
    )
  if not engine.sends_nodes:
    raise ValueError(
      f'--profile={given} needs a process for each node that sees the run directory; use '
      '--launcher=local with --lp_launch_type=local_mp, ray or slurm.'
    )
  directory = os.path.join(run_dir, 'profiles')
  env = profiling.variables(f'{label}/{int(index or 0)}', seconds, directory)
  resources = placement[label]
  return {
    **placement,
    label: dataclasses.replace(resources, env={**resources.env, **env}),
  }
