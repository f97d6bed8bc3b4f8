"""Installs the locked packages, and beside them those that the user has added.

python install_packages.py keep LOCK...      what the locks and requirements-user.in ask for
python install_packages.py add LOCK...       also the packages that the variable PACKAGES names
python install_packages.py remove LOCK...    without these

`make` calls it, with the Python of the virtual environment that it changes and beside which uv is. A
locked package never changes its version: what does not fit is refused, and all stays as it was.
"""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys
from collections.abc import Sequence

# What the user asks for, one requirement a line, and what uv made of it.
ASKED, RESOLVED = pathlib.Path('requirements-user.in'), pathlib.Path('requirements-user.txt')
_UV = os.path.join(os.path.dirname(sys.executable), 'uv')
_PIN = r'([A-Za-z0-9][\w.-]*)==([\w.!+-]*\w)'


def name(requirement: str) -> str:
  """Returns the normalised name in a requirement; without one, as in a path, the requirement."""
  found = re.match(r'([A-Za-z0-9][\w.-]*)\s*(\[.*?\])?\s*([<>=!~;@#]|$)', requirement.strip())
  return re.sub(r'[-_.]+', '-', found[1]).lower() if found else requirement.strip()


def changed(change: str, lines: Sequence[str], packages: Sequence[str]) -> list[str]:
  """Returns the lines of ASKED after a change.

  Args:
    change: 'keep', 'add' or 'remove'.
    lines: those before it.
    packages: requirements to add, or names to remove.

  Raises:
    ValueError: no package is named, or one to remove is not there; one sentence.
  """
  if change == 'keep':
    return list(lines)
  if not packages:
    raise ValueError(f"name the packages, as in make {change} PACKAGES='navix wandb'")
  named = {name(package): package for package in packages}
  if change == 'add':
    return [line for line in lines if name(line) not in named] + list(named.values())
  missing = named.keys() - {name(line) for line in lines}
  if missing:
    raise ValueError(
      f'{ASKED} has no {", ".join(sorted(missing))}; '
      + (f'it has {", ".join(lines)}' if lines else 'nothing has been added')
    )
  return [line for line in lines if name(line) not in named]


def _resolve(lines: Sequence[str], locks: Sequence[str], newest: Sequence[str]) -> None:
  """Writes RESOLVED; requirements of `newest` get the newest version that fits, others keep theirs.

  Raises:
    ValueError: the packages cannot be resolved; one sentence, which follows uv's explanation.
  """
  options = [f'--constraint={lock}' for lock in locks]
  named = [name(requirement) for requirement in newest]
  options += [f'--upgrade-package={n}' for n in named if re.fullmatch(r'[a-z0-9-]+', n)]
  said = _compile(lines, [*options, '--output-file', str(RESOLVED)])
  if not said:
    return
  wrong = lines
  for line in lines if len(lines) > 1 else []:  # uv names every package that one of them limits.
    if alone := _compile([line], options):
      said, wrong = alone, [line]
      break
  print(said, file=sys.stderr)
  held = dict(pin for lock in locks for pin in re.findall(f'(?m)^{_PIN}', _read(lock)))
  pins = dict.fromkeys(re.findall(_PIN, said))
  ours = [f'{package}=={version}' for package, version in pins if held.get(package) == version]
  if not ours:
    raise ValueError(f'uv cannot resolve {", ".join(wrong)}')
  raise ValueError(
    f'{", ".join(wrong)} does not fit {", ".join(ours[:3])}, which {" or ".join(locks)} holds'
  )


def _compile(lines: Sequence[str], options: Sequence[str]) -> str:
  """Resolves requirements; returns what uv says if it cannot."""
  command = [_UV, 'pip', 'compile', '-', '--quiet', '--generate-hashes', '--python', sys.executable]
  done = subprocess.run(
    [*command, '--custom-compile-command', 'make add', *options],
    input='\n'.join(lines),
    capture_output=True,
    text=True,
  )
  return done.stderr if done.returncode else ''


def _install(locks: Sequence[str], own: bool) -> None:
  """Makes the virtual environment hold the locked packages, those of RESOLVED, and no others.

  Raises:
    ValueError: uv failed; one sentence, which follows uv's own.
  """
  command = [_UV, 'pip', 'sync', '--quiet', '--python', sys.executable, *locks]
  # A repository or a directory, which only a user's requirement may be, has no hash.
  command += [str(RESOLVED)] if own else ['--require-hashes']
  if subprocess.run(command).returncode:
    raise ValueError('uv cannot install the packages')


def _read(path: str | pathlib.Path) -> str:
  return pathlib.Path(path).read_text() if os.path.exists(path) else ''


def _write(path: pathlib.Path, text: str) -> None:
  if text:
    path.write_text(text)
  else:
    path.unlink(missing_ok=True)


def main(change: str, locks: Sequence[str]) -> int:
  """Runs the command; returns the exit code."""
  packages = os.environ.get('PACKAGES', '').split()
  asked, resolved = _read(ASKED), _read(RESOLVED)
  try:
    lines = changed(change, asked.splitlines(), packages)
    wanted = [line for line in lines if not line.lstrip().startswith('#') and line.strip()]
    if wanted:
      _resolve(wanted, locks, packages if change == 'add' else [])
    _install(locks, bool(wanted))
  except ValueError as error:
    _write(RESOLVED, resolved)
    stays = 'the environment is as it was'
    if change == 'keep' and wanted:
      stays += f'; change {ASKED}, by `make remove PACKAGES=...` for example'
    print(f'error: {error}; {stays}.', file=sys.stderr)
    return 2
  if change != 'keep':
    _write(ASKED, ''.join(f'{line}\n' for line in lines))
  if not wanted:
    _write(RESOLVED, '')
  own = {name(line) for line in wanted}
  pins = [f'{n}=={v}' for n, v in re.findall(f'(?m)^{_PIN}', _read(RESOLVED)) if n in own]
  if pins:
    print(f'of {ASKED}: {", ".join(pins)}')
  return 0


if __name__ == '__main__':
  sys.exit(main(sys.argv[1], sys.argv[2:]))
