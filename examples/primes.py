"""A Launchpad program without learning: workers count prime numbers, a collector adds up."""

import launchpad as lp


class Worker:
  def count(self, first, last):
    print(f'numbers {first} to {last}')
    return sum(all(n % k for k in range(2, int(n**0.5) + 1)) for n in range(max(first, 2), last))


class Collector:
  def __init__(self, workers, limit, part):
    self._workers, self._limit, self._part = workers, limit, part

  def run(self):
    parts = range(0, self._limit, self._part)
    calls = [
      self._workers[k % len(self._workers)].futures.count(n, min(n + self._part, self._limit))
      for k, n in enumerate(parts)
    ]
    print(f'{sum(call.result() for call in calls)} primes below {self._limit}')
    lp.stop()


def make_program(num_workers: int = 2, limit: int = 20_000, part: int = 5000):
  program = lp.Program('primes')
  with program.group('worker'):
    workers = [program.add_node(lp.CourierNode(Worker)) for _ in range(num_workers)]
  program.add_node(lp.PyClassNode(Collector, workers, limit, part), label='collector')
  return program
