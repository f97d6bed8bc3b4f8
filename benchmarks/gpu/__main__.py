"""Measures the programs on one GPU within a budget of time.

python -m benchmarks.gpu                                       nine minutes on one GPU
python -m benchmarks.gpu --sections=pong_ppo --seconds=1800    one section, for as long as it needs
python -m benchmarks.gpu --dry_run                             every section on CPUs, at tiny sizes

Prints each section's results when it ends, and writes them to gpu.json (with --dry_run
gpu-dry-run.json). A section runs in a process of its own and is killed at the end of its share of
--seconds; the others go on. README.md has what is measured.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time

from absl import app, flags

from benchmarks import output
from benchmarks.gpu import budget, sections
from benchmarks.results import provenance
from benchmarks.running import ROOT

_SECONDS = flags.DEFINE_float('seconds', 540.0, 'seconds for all sections', lower_bound=1.0)
_SECTIONS = flags.DEFINE_list('sections', list(sections.WEIGHTS), 'sections to run')
_DRY_RUN = flags.DEFINE_bool('dry_run', False, 'run on CPUs, with tiny sizes')

_DEVICE = (
  'import jax; assert jax.default_backend() == "gpu", "JAX sees no GPU"; '
  'print(jax.devices()[0].device_kind)'
)
_CHECK_SECONDS = 120.0


def _device() -> str:
  """Returns the name of JAX's GPU; exits with one sentence if JAX sees none."""
  done = subprocess.run(
    [sys.executable, '-c', _DEVICE], capture_output=True, text=True, timeout=_CHECK_SECONDS
  )
  if done.returncode:
    reason = (done.stderr.strip().splitlines() or ['JAX does not start'])[-1]
    sys.exit(
      f'error: {reason}; install the plug-in with `make ACCELERATOR=cuda train`, or use --dry_run.'
    )
  return done.stdout.strip()


def main(argv: list[str]) -> None:
  """Runs the sections, and writes their results."""
  del argv
  unknown = [name for name in _SECTIONS.value if name not in sections.WEIGHTS]
  if unknown or not _SECTIONS.value:
    sys.exit(
      f'error: --sections={",".join(_SECTIONS.value)} must be some of {",".join(sections.WEIGHTS)}.'
    )
  started = time.monotonic()
  signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # So that the section is killed as well.
  os.makedirs(output.RESULTS.value, exist_ok=True)
  dry = _DRY_RUN.value
  with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
    # A new compile cache, so that the first program of each kind compiles.
    os.environ['XDG_CACHE_HOME'] = os.path.join(directory, 'cache')
    device = 'cpu' if dry else 'gpu'
    record = {
      **output.machine(),
      **provenance.machine(),
      **provenance.code(str(ROOT)),
      'device': 'cpu' if dry else _device(),
      'dry_run': dry,
    }
    path = os.path.join(output.RESULTS.value, 'gpu-dry-run.json' if dry else 'gpu.json')
    print(f'{record["device"]}, {output.cores()} CPU cores, JAX {record["jax"]}', flush=True)

    def command(name: str, seconds: float, results: str) -> list[str]:
      return [sys.executable, '-m', 'benchmarks.gpu.sections', name, str(seconds), results, device]

    weights = {n: w for n, w in sections.WEIGHTS.items() if n in _SECTIONS.value}
    left = _SECONDS.value - (time.monotonic() - started)
    budget.run(weights, left, command, directory, record, path)
    print(f'wrote {path}')


if __name__ == '__main__':
  app.run(main)
