"""`benchmarks.microseconds`: what perf's samples are counted as."""

import shutil

import pytest

from benchmarks import microseconds
from tests.benchmarks import smoke

SAMPLES = """\
   41     7f2a41c0 _PyEval_EvalFrameDefault (/opt/python/lib/libpython3.12.so.1.0)
   41     7f2a41c1 [unknown] (/opt/python/bin/python3.12)
   41 ffffffffb3a0 clear_page_erms ([kernel.kallsyms])
   41 ffffffffb3a1 tcp_sendmsg ([kernel.kallsyms])
   42     7f2a41c2 __memmove_avx512_unaligned_erms (/usr/lib/libc.so.6)
   42     7f2a41c3 malloc (/usr/lib/libc.so.6)
   42     7f2a41c4 [unknown] ([JIT] tid 42)
   42     7f2a41c5 [unknown] (/x/site-packages/jaxlib/libjax_common.so)
   42     7f2a41c6 [unknown] (/x/site-packages/cramjam/cramjam.abi3.so)
   42     7f2a41c7 act(int, char) (/x/site-packages/ale_py/_ale_py.so)

no sample
"""


def test_samples_are_counted_by_process_and_by_what_runs():
  assert microseconds.counted(SAMPLES.splitlines()) == {
    41: {'Python': 2, 'fresh pages': 1, 'kernel': 1},
    42: {'copies': 1, 'libc': 1, 'XLA and JAX': 2, 'LZ4': 1, 'others': 1},
  }


@pytest.mark.nightly
@pytest.mark.skipif(shutil.which('perf') is None, reason='there is no perf')
def test_a_program_is_sampled():
  process = smoke.command('microseconds', '--seconds=3', '--warm_up=0')
  assert process.returncode == 0, process.stderr
  groups = [line.split()[0] for line in process.stdout.splitlines() if line[:1].islower()]
  assert {'actor', 'inference_learner', 'replay', 'sum'} <= set(groups)
