"""Tasks that need memory."""

from __future__ import annotations

from benchmarks.results.declared import Task
from benchmarks.results.rows import systems

TASKS = (
  Task(
    name='memory-len',
    title='Memory length',
    about=(
      "bsuite's memory_len/15. The first observation shows what the last action, 30 steps later, has to "
      'be. The best return is 1, and the expected return of an agent without memory is 0.'
    ),
    rows=(
      systems.ours('r2d2', 'bsuite:memory_len/15', 300_000),
      systems.ppo(
        'sebulba',
        'bsuite:memory_len/15',
        150_000,
        '--core=lstm',
        '--unroll_length=64',  # An episode has 31 steps.
        label='sebulba-ppo-lstm',
      ),
      systems.ours(
        'sebulba', 'bsuite:memory_len/15', 1_000_000, '--core=lstm', label='sebulba-lstm'
      ),
      systems.pqn(
        'sebulba',
        'bsuite:memory_len/15',
        150_000,
        '--core=lstm',
        label='sebulba-pqn-lstm',  # Its preset's unrolls have 64 transitions.
      ),
    ),
    thresholds=(0.9,),
    missed=(
      '`sebulba-lstm`, V-trace, does not learn it: its unrolls are shorter than an episode, so no '
      'gradient reaches the cue.'
    ),
  ),
  Task(
    name='memory-len-100',
    title='Memory length of 100',
    about=(
      "bsuite's memory_len/22, whose cue is 100 steps old. The preset of bsuite has forget gates with "
      'an initial bias of 4. `r2d2-forgetting` has the usual bias of 1. `r2d2-uniform` samples replay '
      'without priorities. `r2d2-gru` and `r2d2-lru` have other cores than the LSTM. The best return is '
      '1, without memory it is 0.'
    ),
    rows=(
      systems.ours('r2d2', 'bsuite:memory_len/22', 600_000),
      systems.ours(
        'r2d2', 'bsuite:memory_len/22', 600_000, '--forget_bias=1', label='r2d2-forgetting'
      ),
      systems.ours(
        'r2d2',
        'bsuite:memory_len/22',
        600_000,
        '--priority_exponent=0',
        label='r2d2-uniform',
      ),
      systems.ours('r2d2', 'bsuite:memory_len/22', 600_000, '--core=gru', label='r2d2-gru'),
      systems.ours('r2d2', 'bsuite:memory_len/22', 600_000, '--core=lru', label='r2d2-lru'),
    ),
    thresholds=(0.9,),
  ),
  Task(
    name='recall',
    title='Recall',
    about=(
      'A cue is asked for 10 to 13 rows later, and an unroll of replay has 10. `r2d2-zero` begins '
      'replayed unrolls from a zero state. The best return is 1, that of a guess 0.'
    ),
    rows=(
      systems.ours('r2d2', 'recall', 200_000),
      systems.ours('r2d2', 'recall', 200_000, '--replay_state=zero', label='r2d2-zero'),
    ),
    thresholds=(0.9,),
    episodes=1000,
  ),
)
