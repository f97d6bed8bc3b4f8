"""A command of a run, as its record has it."""

from benchmarks.results.attempts import Attempt

MACHINE = {'cpu': 'a processor', 'cpu_cores': 2, 'memory_gib': 4, 'accelerators': []}


def attempted(first_second=0.0, start_up=1.0, seconds=20.0, load=0.5):
  return Attempt(
    began=1000.0,
    first_second=first_second,
    code={'commit': 'abc', 'modified': False},
    machine=MACHINE,
    load_at_start=load,
    load_at_end=load,
    seconds=seconds,
    start_up=start_up,
    exit_code=0,
  )
