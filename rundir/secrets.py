"""Masks the values of options that look like secrets."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

MASK = '***'
_SECRET = {'key', 'apikey', 'token', 'password', 'passwd', 'secret', 'credential', 'credentials'}
_WORD = re.compile('[A-Z]+(?![a-z])|[A-Z]?[a-z]+')
_OPTION = re.compile(r'([\w.-]+)=([^,]*)')


def masked(text: str) -> str:
  """Returns options such as 'rows=5,api_key=abc', or a flag with them, with secrets masked."""
  flag, equals, value = text.partition('=')
  if flag.startswith('-') and equals:
    return f'{flag}={MASK if _is_secret(flag) else masked(value)}'
  return _OPTION.sub(lambda m: f'{m[1]}={MASK}' if _is_secret(m[1]) else m[0], text)


def masked_command(command: list[str]) -> list[str]:
  """Returns the words of a command, with the values of secrets masked."""
  words = [masked(word) for word in command]
  for i, word in enumerate(command[:-1]):
    if word.startswith('-') and '=' not in word and _is_secret(word):
      words[i + 1] = MASK  # The flag's value is the next word.
  return words


def masked_options(options: Mapping[str, Any]) -> dict[str, Any]:
  """Returns options by name, with the values of secrets masked."""
  return {name: MASK if _is_secret(name) else value for name, value in options.items()}


def shown(name: str, value: Any) -> str:
  """Returns the value of an option as text, with secrets masked."""
  return MASK if _is_secret(name) else masked(str(value))


def holds_any(values: Mapping[str, Any]) -> bool:
  """Returns whether an option is a secret or contains one, as `env_options` may."""
  return any(
    bool(value) and (_is_secret(name) or (isinstance(value, str) and masked(value) != value))
    for name, value in values.items()
  )


def _is_secret(name: str) -> bool:
  """Returns whether a word of the name marks a secret: 'api_key' and 'accessToken', not 'num_tokens'."""
  return any(word.lower() in _SECRET for word in _WORD.findall(name))
