"""launch.py --completion: a script that completes its flags and their values in a shell."""

from __future__ import annotations

from collections.abc import Iterator

from absl import flags

from environments import jax_registry
from environments import registry as environments
from programs import registry
from programs.options import agent_choice, preset_choice, suggestions

SHELL = flags.DEFINE_enum(
  'completion',
  None,
  ['bash', 'zsh'],
  'print a script that completes these flags: source <(python launch.py --completion=bash)',
)
# Without a reply, the shell completes names of files. Bash makes = a word of its own, zsh does not.
_FUNCTION = r"""# Completes the flags of launch.py.
_launchpod() {
  local word cur="${COMP_WORDS[COMP_CWORD]}" prev="${COMP_WORDS[COMP_CWORD-1]}"
  local flag='' before='' values=''
  local flags='@FLAGS@'
  COMPREPLY=()
  case "$cur" in
    --*=*) flag="${cur%%=*}"; before="$flag="; cur="${cur#*=}" ;;
    =) flag="$prev"; cur='' ;;
    *)
      if [ "$prev" = '=' ]; then
        flag="${COMP_WORDS[COMP_CWORD-2]}"
      else
        case " $flags " in *" $prev= "*) flag="$prev" ;; esac
      fi ;;
  esac
  case "$flag" in
    '') values="$flags" ;;
@VALUES@
  esac
  for word in $(compgen -W "$values" -- "$cur"); do
    case "$flag:$word" in
      *=|--env:*) COMPREPLY+=("$before$word") ;;
      *) COMPREPLY+=("$before$word ") ;;
    esac
  done
  return 0
}
"""
# A shell chooses by the first word, so the lines that begin with python come here as well. Those without
# launch.py are completed as they would be otherwise.
_ATTACH = {
  'bash': r"""
_launchpod_attach() {
  local spec
  spec="$(complete -p "$1" 2> /dev/null)"
  case "$spec" in
    *' -F _launchpod_python '*) ;;
    *' -F '*) spec="${spec#* -F }"; _launchpod_others[$1]="${spec%% *}" ;;
  esac
  complete -o bashdefault -o default -o nospace -F _launchpod_python "$1"
}
_launchpod_python() {
  local word name="${1##*/}" loader
  for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    case "$word" in launch.py|*/launch.py) _launchpod; return ;; esac
  done
  compopt +o nospace
  # bash-completion loads the function of a command when it is first needed.
  loader="$(complete -p -D 2> /dev/null)"
  if [ -z "${_launchpod_others[$name]}" ] && [ "$loader" != "${loader#* -F }" ]; then
    loader="${loader#* -F }"
    "${loader%% *}" "$name" '' ''
    _launchpod_attach "$name"
  fi
  if [ -n "${_launchpod_others[$name]}" ]; then "${_launchpod_others[$name]}" "$@"; fi
}
declare -A _launchpod_others
complete -o bashdefault -o default -o nospace -F _launchpod launch.py
_launchpod_attach python
_launchpod_attach python3
""",
  'zsh': r"""
if ! whence compdef > /dev/null; then autoload -U +X compinit && compinit; fi
autoload -U +X bashcompinit && bashcompinit
_launchpod_zsh() {
  local before="${words[2,CURRENT-1]}"
  if [[ "$service" = launch.py || " $before " = *[\ /]launch.py\ * ]]; then
    _bash_complete -o bashdefault -o default -o nospace -F _launchpod
  else
    "$_launchpod_other"
  fi
}
if [[ "${_comps[python]}" != _launchpod_zsh ]]; then  # zsh's own is there for a pattern of names.
  _launchpod_other="${_comps[python]:-${${functions[_python]:+_python}:-_default}}"
fi
compdef _launchpod_zsh launch.py python python3
""",
}


def script(shell: str) -> str:
  """Returns the script for a shell; all flags have to be defined.

  Args:
    shell: 'bash' or 'zsh'.
  """
  words = ' '.join(sorted(_words()))
  values = '\n'.join(f"    --{name}) values='{' '.join(found)}' ;;" for name, found in _values())
  made = _FUNCTION.replace('@FLAGS@', words).replace('@VALUES@', values)
  return made + _ATTACH[shell]


def _words() -> Iterator[str]:
  """Yields the flags, with = where they need a value."""
  yield '--help'
  for flag in suggestions.flags_of_ours():
    if flag.boolean:
      yield from (f'--{flag.name}', f'--no{flag.name}')
    else:
      yield f'--{flag.name}='


def _values() -> Iterator[tuple[str, list[str]]]:
  """Yields the flags that have a list of values, with these."""
  variants = [
    v for name in registry.PROGRAMS for v in agent_choice.variants(registry.load(name)).items()
  ]
  presets = {name for _, variant in variants for name in preset_choice.tables(variant)}
  families = environments.families().keys() | jax_registry.families().keys()
  known = {
    'program': registry.PROGRAMS.keys(),
    'agent': {agent for agent, _ in variants} - {''},
    'env': families,
    'preset': presets | {'none'},
  }
  for flag in suggestions.flags_of_ours():
    found = known.get(flag.name, getattr(flag.parser, 'enum_values', ()))
    if found:
      yield flag.name, sorted(found)
