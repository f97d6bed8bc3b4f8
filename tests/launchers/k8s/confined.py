"""Confines a local process as the manifests of --launcher=k8s confine a container, but for seccomp."""

import os
import pathlib
import shlex
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent.parent
TEMPORARY = '/tmp'


def missing():
  """Returns what this needs and the machine lacks, or an empty string."""
  if os.geteuid() != 0:
    return 'root, to make mount namespaces'
  if not (shutil.which('unshare') and shutil.which('setpriv')):
    return 'unshare and setpriv'
  if subprocess.run(['unshare', '--mount', 'true'], capture_output=True).returncode:
    return 'the right to make mount namespaces'
  return ''


def inside(mounted):
  """Returns where a volume is, for a path in a manifest. This machine's root has no room for it."""
  return f'/mnt{mounted}'


def command(pod, volumes):
  """Returns the beginning of a command, to which that of the process is added.

  Args:
    pod: what the manifest says of it.
    volumes: its volumes but for `TEMPORARY`, {path in the manifest: directory}; see `inside`.
  """
  (container,) = pod['containers']
  own, shared = container['securityContext'], pod['securityContext']
  assert own['readOnlyRootFilesystem'] and not own['allowPrivilegeEscalation']
  assert own['capabilities'] == {'drop': ['ALL']} and shared['runAsNonRoot']
  user = shared['runAsUser']
  script = [
    'mount --make-rprivate /',
    'mount -t tmpfs -o mode=755 tmpfs /mnt',
  ]
  for mounted, directory in volumes.items():
    script += [
      f'mkdir {inside(mounted)}',
      f'chown {user} {shlex.quote(str(directory))}',
      f'mount --bind {shlex.quote(str(directory))} {inside(mounted)}',
    ]
  # The code and its interpreter stay where they are, also in what is new, and what only root may enter.
  kept = {os.path.realpath(path) for path in (sys.base_prefix, sys.prefix, ROOT)}
  hidden = {TEMPORARY, *filter(None, map(_private, kept))}
  kept = sorted(k for k in kept if any(k.startswith(h + os.sep) for h in hidden))
  for i, path in enumerate(kept):
    script += [f'mkdir /mnt/{i}', f'mount --bind {shlex.quote(path)} /mnt/{i}']
  for path in hidden:
    mode = 1777 if path == TEMPORARY else 755
    script.append(f'mount -t tmpfs -o mode={mode} tmpfs {shlex.quote(path)}')
  for i, path in enumerate(kept):
    script += [f'mkdir -p {shlex.quote(path)}', f'mount --bind /mnt/{i} {shlex.quote(path)}']
  script += [
    'mount -o remount,ro,bind /',
    f'cd {shlex.quote(str(ROOT))}',
    f'exec setpriv --reuid={user} --regid={user} --clear-groups --bounding-set=-all '
    '--inh-caps=-all --no-new-privs "$@"',
  ]
  return ['unshare', '--mount', 'sh', '-ec', '\n'.join(script), 'sh']


def _private(path):
  """Returns the first directory on the way to a path that only its owner may enter; '' if none."""
  for parent in [*pathlib.Path(path).parents][::-1]:
    if not parent.stat().st_mode & 0o001:
      return str(parent)
  return ''
