"""The flags of launch.py that print a text and launch nothing."""

from __future__ import annotations

from absl import flags

from programs import plan, preset_list
from programs.options import flags as config_flags

_LIST_ENVS = flags.DEFINE_bool('list_envs', False, "print the program's environments")
_PRESETS = flags.DEFINE_bool(
  'presets', False, 'print what each preset sets; of --program, --env and --preset, if given'
)


def asked_for() -> str | None:
  """Returns the text that the flags ask for, or None if they ask for no listing.

  Raises:
    ValueError: if a flag that selects what is listed is wrong; one sentence that names it.
  """
  if _LIST_ENVS.value:
    return plan.environments()
  if _PRESETS.value:
    plan.learning_program('presets')
    program = plan.PROGRAM.value if plan.PROGRAM.present else ''
    return preset_list.listing(program, config_flags.given())
  return None
