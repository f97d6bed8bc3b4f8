"""Wheels of one module, written by hand."""

import hashlib
import zipfile


def write_wheel(folder, name, version, *requires):
  """Writes a wheel of one module; returns its line of a lock."""
  path = folder / f'{name}-{version}-py3-none-any.whl'
  metadata = f'Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n'
  with zipfile.ZipFile(path, 'w') as wheel:
    info = f'{name}-{version}.dist-info'
    wheel.writestr(f'{name}.py', f'VERSION = {version!r}\n')
    wheel.writestr(
      f'{info}/METADATA', metadata + ''.join(f'Requires-Dist: {r}\n' for r in requires)
    )
    wheel.writestr(
      f'{info}/WHEEL', 'Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n'
    )
    wheel.writestr(f'{info}/RECORD', '')
  return f'{name}=={version} --hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}\n'
