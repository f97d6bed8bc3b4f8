"""Learning from what another run has recorded."""

from __future__ import annotations

from benchmarks.results.declared import Launch, Task


def _qt_opt(label: str, *flags: str, **inputs: Launch) -> Launch:
  """Returns a row of QT-Opt on Pendulum, which reads the runs of other rows."""
  return Launch(
    label=label,
    program='qt_opt',
    env='gymnasium:Pendulum-v1',
    budget=10_000,
    flags=flags,
    inputs=inputs,
  )


_ONLINE = _qt_opt('online', '--record_unrolls')
_OFFLINE = _qt_opt('offline', '--online_share=0', offline_data=_ONLINE)

TASKS = (
  Task(
    name='pendulum-offline',
    title='Pendulum, from recorded data',
    about=(
      'Every row is `qt_opt` on Pendulum. `online` records the transitions that the others read, of the '
      'same seed. `offline` learns from nothing else. `joint` learns from its own transitions too, and '
      '`joint-tuned` begins with the parameters of `offline`.'
    ),
    rows=(
      _ONLINE,
      _OFFLINE,
      _qt_opt('joint', offline_data=_ONLINE),
      _qt_opt('joint-tuned', offline_data=_ONLINE, init_from=_OFFLINE),
    ),
    thresholds=(-200.0,),
  ),
)
