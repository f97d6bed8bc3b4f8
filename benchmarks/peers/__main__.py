"""Compares our programs with other systems on the same machine, with alternating runs.

python -m benchmarks.peers --env=cartpole
python -m benchmarks.peers --env=cartpole --until_return --seconds=300    seconds to a return of 400
python -m benchmarks.peers --env=cartpole --best_settings \\
  --scripts=cleanrl=path/to/ppo_atari_envpool_xla_jax_scan.py,stoix=path/to/checkout
python -m benchmarks.peers --env=atari:Pong
python -m benchmarks.peers --env=gymnasium:HalfCheetah-v5 --num_actors=2 --envs_per_actor=32 \\
  --unroll_length=32 --batch_size=16
python -m benchmarks.peers --env=atari:Pong --torso=impala --scripts=cleanba=path/to/cleanba_impala.py

sebulba, impala   ours, by launch.py, without evaluator
anakin            ours as well, on gymnax's CartPole; CartPole only
sample_factory    APPO of Sample Factory
rllib             IMPALA of RLlib, on PyTorch
pufferlib         PuffeRL of PufferLib, on PyTorch
cleanrl           CleanRL's PPO with envpool within XLA, from the user's copy of its script
stoix             the Sebulba IMPALA of Stoix, from the user's checkout
cleanba           the IMPALA of Cleanba, from the user's copy of its script; Atari only

The first use of a peer makes a virtual environment for it, with the versions of a list beside this file.
All systems get the same environment, network, unroll length, batch size, number of environments,
discount, learning rate and costs: those of our program's flags. The remaining differences are printed.
Each run has a different seed, the same in all systems. With --best_settings, each system that has them
runs at its own best settings as well, as <system>_best.

A step is a decision of the agent, by each system's own count. `learned` counts the steps that the
learner trained on, since some systems drop or repeat steps. Rates cover --seconds, from the first report
--warm_up after the first steps. CPU time is that of all processes of a run. Prints a table of the runs
and one of their medians; writes peers-<env>.json and .png.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import sys
from typing import Any

from absl import flags
from matplotlib.figure import Figure

from benchmarks import options, output
from benchmarks.peers import (
  best,
  choosing,
  differences,
  measuring,
  reports,
  scripts,
  systems,
  tree,
  virtual,
)
from benchmarks.peers import settings as common
from programs.options import flags as config_flags

_SYSTEMS = flags.DEFINE_list(
  'systems',
  [],
  'systems to compare; if empty, ours and all peers of the environment that are packages',
)
_SCRIPTS = flags.DEFINE_list(
  'scripts',
  [],
  'paths of peers that no package has, to compare them as well: '
  'cleanrl=path/to/ppo_atari_envpool_xla_jax_scan.py,stoix=path/to/checkout',
)
_BEST = flags.DEFINE_bool(
  'best_settings',
  False,
  'also run each system that has them at its own best settings, as <system>_best; CartPole only',
)
_WHEELS = flags.DEFINE_string(
  'wheels',
  '',
  'directory with a CPU build of the PyTorch in the lists of requirements; if empty, it is '
  'downloaded',
)
_UNTIL_RETURN = flags.DEFINE_bool(
  'until_return', False, 'end a run when its return reaches that of a learned CartPole, 400'
)


def chosen() -> list[str]:
  """Returns the names of the runs of a turn; see `choosing.names`."""
  return choosing.names(
    _SYSTEMS.value, scripts.parse(_SCRIPTS.value), _BEST.value, config_flags.given()
  )


def check() -> None:
  """Raises ValueError, one sentence, if the flags do not fit together."""
  for name in chosen():
    best.common(name, config_flags.given())
  if _WHEELS.value and not os.path.isdir(_WHEELS.value):
    raise ValueError(f'--wheels={_WHEELS.value} is not a directory.')
  if _UNTIL_RETURN.value and common.make(config_flags.given()).threshold is None:
    raise ValueError('--until_return is for --env=cartpole; leave it out, the others take hours.')


def measure(name: str, turn: int) -> dict[str, Any]:
  """Runs a system once; see `measuring.follow`.

  Args:
    name: of the system, or of it at its best settings.
    turn: number of runs of it before this one.
  """
  made = best.common(name, config_flags.given())
  made = dataclasses.replace(made, seed=made.seed + turn)
  plan = measuring.Plan(
    options.WARM_UP.value, options.SECONDS.value, made.threshold, _UNTIL_RETURN.value
  )
  system, given = best.system(name), best.options(name, config_flags.given())
  script = scripts.parse(_SCRIPTS.value).get(system, '')
  with (
    tree.killed_at_the_end() as processes,
    systems.start(system, made, given, script, processes) as run,
  ):
    return measuring.follow(run, processes, plan, made.action_repeat)


def summary(runs: dict[str, list[dict[str, Any]]]) -> dict[str, dict[str, Any]]:
  """Returns the spread of each measurement over the runs of each system."""
  names = (
    'steps_per_second',
    'learned_steps_per_second',
    'frames_per_second',
    'seconds_to_first_steps',
    'seconds_to_return',
    'peak_memory',
    'cores_busy',
    'cpu_us_per_step',
  )
  return {
    system: {name: reports.spread(measured, name) for name in names}
    for system, measured in runs.items()
  }


def draw(title: str, runs: dict[str, list[dict[str, Any]]], threshold: float | None) -> Figure:
  """Draws every run of every system, and the medians."""
  panels = {
    'steps/s': ('steps_per_second', 1.0),
    'CPU us a step': ('cpu_us_per_step', 1.0),
    'peak memory, MiB': ('peak_memory', 2.0**20),
  }
  if threshold is not None:
    panels[f'seconds to a return of {threshold:.0f}'] = ('seconds_to_return', 1.0)
  figure = Figure(figsize=(4 * len(panels), 4), layout='constrained')
  for axes, (label, (name, unit)) in zip(
    figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True
  ):
    for place, measured in enumerate(runs.values()):
      spread = reports.spread(measured, name)
      if spread:
        axes.bar(place, spread['median'] / unit, color=f'C{place}', alpha=0.5)
      values = [run[name] / unit for run in measured if run[name] is not None]
      axes.plot([place] * len(values), values, '.', color='black')
    axes.set_xticks(range(len(runs)), list(runs), rotation=30)
    axes.set_ylabel(label)
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3, axis='y')
  figure.suptitle(title, fontsize='medium')
  return figure


def main(argv: list[str]) -> None:
  """Runs the benchmark; prints the tables and writes the results."""
  del argv
  names, given = chosen(), common.make(config_flags.given())
  try:
    for name in names:
      if (peer := systems.PEERS.get(name)) is not None:
        virtual.install(name, peer.python, _WHEELS.value, peer.built)
  except ValueError as error:
    print(f'error: {error}', file=sys.stderr)
    sys.exit(1)

  print(
    f'{given.env}, {output.cores()} CPU cores; medians of {options.REPEATS.value} runs, in turn'
  )
  shown = {name: systems.versions(name) for name in names if name == best.system(name)}
  for name, by_package in shown.items():
    print(f'{name}: ' + ', '.join(f'{package} {v}' for package, v in by_package.items()))
  if others := choosing.left_out(names, given):
    print(f'left out: {", ".join(others)}; --scripts=NAME=PATH of its script or checkout adds one')
  table = output.Table(
    run='>3',
    system='<15',
    steps_per_s='>11,.0f',
    learned='>8,.0f',
    frames_per_s='>12,.0f',
    first_steps_s='>13.1f',
    return_s='>8.1f',
    last_return='>11.1f',
    peak_MiB='>8,.0f',
    processes='>9',
    cores='>5.2f',
    cpu_us_per_step='>15.1f',
  )
  runs: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
  for repeat in range(options.REPEATS.value):
    for name in names:
      run = measure(name, repeat)
      runs[name].append(run)
      table.add(
        repeat + 1,
        name,
        run['steps_per_second'],
        run['learned_steps_per_second'],
        run['frames_per_second'],
        run['seconds_to_first_steps'],
        run['seconds_to_return'],
        run['episode_return'],
        run['peak_memory'] / 2**20,
        run['processes'],
        run['cores_busy'],
        run['cpu_us_per_step'],
      )

  print()
  table = output.Table(
    median_and_range='<16',
    steps_per_s='>29',
    cpu_us_per_step='>24',
    frames_per_s='>27',
    return_s='>24',
    peak_MiB='>22',
  )
  medians = summary(runs)
  text = functools.partial(reports.shown, runs=options.REPEATS.value)
  for name, spreads in medians.items():
    memory = {k: v if k == 'runs' else v / 2**20 for k, v in spreads['peak_memory'].items()}
    table.add(
      name,
      text(spreads['steps_per_second']),
      text(spreads['cpu_us_per_step'], digits=1),
      text(spreads['frames_per_second']),
      text(spreads['seconds_to_return'], digits=1),
      text(memory),
    )
  print(
    '\nthe same in all: ' + ', '.join(f'{k}={v}' for k, v in vars(given).items() if k != 'game')
  )
  if given.game:
    print('the game: ' + ', '.join(f'{k}={v}' for k, v in given.game.items()))
  remaining = differences.lines(names, given)
  print('different:\n' + '\n'.join(f'  {line}' for line in remaining))
  record = {
    'settings': dataclasses.asdict(given),
    'options_given': config_flags.given(),
    'options': {name: best.options(name, config_flags.given()) for name in names},
    'versions': shown,
    'warm_up': options.WARM_UP.value,
    'seconds': options.SECONDS.value,
    'until_return': _UNTIL_RETURN.value,
    'differences': remaining,
    'medians': medians,
    'runs': runs,
  }
  title = f'{given.env}, {output.cores()} CPU cores'
  output.write(f'peers-{given.env.replace(":", "-")}', record, draw(title, runs, given.threshold))


if __name__ == '__main__':
  flags.FLAGS.set_default('seconds', 60.0)
  options.run(main, check, programs=())
