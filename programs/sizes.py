"""--envs_per_actor=auto, --inference_batch_size=auto: sizes that are measured before a program starts.

They become plain numbers among the user's options, so a run directory records numbers, and a resumed
run has the same. launch.py imports no JAX, so `programs.size_benchmark` measures in its own process.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from environments import separate_process
from programs.options import agent_choice, configs, measured
from programs.options.inference import InferenceConfig

ENVS, BATCH = 'envs_per_actor', 'inference_batch_size'


def measure(
  program: str, module: Any, given: Mapping[str, Any]
) -> tuple[dict[str, int], list[str]]:
  """Returns a number for each option that is 'auto', and why it was chosen, a line each.

  Args:
    program: name of the program; a user's own by its absolute path.
    module: its module.
    given: the options that the user set.

  Raises:
    ValueError: the other options do not fit together, or these cannot be measured; one sentence.
  """
  _, variant = agent_choice.chosen(module, dict(given))
  asked = measured.asked(variant.config, given)
  if not asked:
    return {}, []
  rest = {name: value for name, value in given.items() if name not in asked}
  config = configs.make_config(module, rest)
  _refuse(asked, module, config)
  flag = ' '.join(f'--{name}=auto' for name in asked)
  chosen, why = separate_process.call(
    'programs.size_benchmark:choose', program, asked, rest, flag=flag
  )
  return chosen, why


def _refuse(asked: list[str], module: Any, config: Any) -> None:
  """Raises ValueError, one sentence, for what cannot be measured."""
  flag = f'--{asked[0]}=auto'
  if module.make_agent is None:
    raise ValueError(
      f'{flag}: the agent cannot be measured, because the file has no make_agent(config); add it, or '
      'give a number.'
    )
  if getattr(config, 'actor_python', ''):
    raise ValueError(
      f'{flag} measures the environment in the interpreter of launch.py, and --actor_python='
      f'{config.actor_python} plays it; give a number.'
    )
  if BATCH in asked and config.accelerator != 'cpu':
    raise ValueError(
      f'--{BATCH}=auto measures CPUs, and --accelerator={config.accelerator} infers; give a number, or '
      'leave it out.'
    )


def infers_apart(config: Any) -> bool:
  """Returns whether a process of its own infers for the actors; False if each actor does."""
  return isinstance(config, InferenceConfig)
