"""Names the bottleneck of a program, from the shares of time that its nodes wait and work.

`verdict` holds the rules; the first that applies decides. Every view of a run shows its sentence.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from rundir import reading
from rundir.graph_file import Graph
from rundir.roles import ACTOR, INFERENCE, LEARNER, LOADER

# A learner that waits less has all the unrolls that it can take; one that waits more lacks them.
_NEVER, _OFTEN = 0.10, 0.25
_FULL = 0.9  # Of a queue, in a mean over a minute.
_HELD_BACK = 0.25  # Requests that wait for replay, as a share of the environment groups.
_BUSY = 0.6  # Of the time of an environment or of the inference threads.
_SELDOM = 0.2  # Of the time of an actor.
_FILLED = 0.6  # Of the room in inference batches.
_CROWDED = 0.9  # Of the cores.


@dataclasses.dataclass(frozen=True)
class Utilization:
  """How busy the parts of a program are, as means over the last minute.

  A value is nan if the program does not have it or has not measured it.

  Attributes:
    learner_waiting: share of the time that the learner waits for a batch.
    stepping: share of the time that the actors step environments.
    waiting: share of the time that the actors wait for actions.
    inference_busy: share of the time that the inference threads compute.
    batch_fill: environments in an inference batch, as a share of its room.
    held_back: requests that wait until replay takes an unroll, as a share of the environment groups.
    replay_capacity: unrolls that replay can hold; 0 without replay.
    replay_fill: unrolls in replay, as a share of its capacity.
    first_fill: `replay_fill` at which learning starts; 0 for a queue.
    is_queue: whether replay delivers each unroll once.
    env_groups: parts of an actor's environments that are stepped in turn; 0 if actors compute their own
      actions.
    cores_used: CPU seconds of all nodes per second.
    cores: CPU cores that the program may use.
    cores_idle: cores of the machine that no process uses.
    only_recorded: whether replay holds what was recorded before, and no actor writes to it.
  """

  learner_waiting: float = math.nan
  stepping: float = math.nan
  waiting: float = math.nan
  inference_busy: float = math.nan
  batch_fill: float = math.nan
  held_back: float = math.nan
  replay_capacity: float = 0.0
  replay_fill: float = math.nan
  first_fill: float = 0.0
  is_queue: bool = True
  env_groups: int = 1
  cores_used: float = math.nan
  cores: float = math.nan
  cores_idle: float = math.nan
  only_recorded: bool = False

  @property
  def acts_itself(self) -> bool:
    """Whether actors compute their own actions."""
    return self.env_groups == 0

  @property
  def queue_is_full(self) -> bool:
    """Whether replay is a queue without room."""
    return self.is_queue and self.replay_fill >= _FULL

  @property
  def actors_are_held_back(self) -> bool:
    """Whether many requests wait until replay takes an unroll."""
    return self.held_back >= _HELD_BACK

  @property
  def cores_of_others(self) -> float:
    """Cores that processes which are no nodes use, if no core is left because of them; else 0."""
    others = self.cores - self.cores_used - self.cores_idle
    full = self.cores_idle <= (1 - _CROWDED) * self.cores
    return others if full and others > (1 - _CROWDED) * self.cores else 0.0


@dataclasses.dataclass(frozen=True)
class Verdict:
  """What limits a program.

  Attributes:
    bottleneck: 'learner', 'environments', 'inference', 'batching', 'actors', 'machine',
      'replay', 'none' or 'unknown'.
    sentence: what limits it, and what would help.
    rule: the values that decide, and the limits that they are compared with; '' without values.
  """

  bottleneck: str
  sentence: str
  rule: str


UNKNOWN = Verdict('unknown', 'nothing has been measured yet', '')


def verdict(f: Utilization) -> Verdict:
  """Returns what limits a program with this utilization."""
  if f.replay_fill < f.first_fill:
    return Verdict(
      'replay',
      'replay is filling: the learner starts once it holds --min_replay_size unrolls',
      f'replay is {f.replay_fill:.0%} full, learning starts at {f.first_fill:.0%}',
    )
  if not math.isfinite(f.learner_waiting):
    return UNKNOWN
  waits = f'the learner waits {f.learner_waiting:.0%} of the time'
  if f.learner_waiting < _NEVER:
    return _learner_is_fed(f, waits)
  if f.learner_waiting < _OFTEN:
    return Verdict(
      'none',
      'nothing stands out: the learner seldom waits; faster actors and a faster learner would each '
      'help a little' + _crowd(f),
      f'{waits}, between {_NEVER:.0%} and {_OFTEN:.0%}',
    )
  return _learner_lacks_unrolls(f, waits)


def name(found: Verdict) -> str:
  """Returns the name of a bottleneck; '-' if none has been found."""
  return '-' if found.bottleneck in ('none', 'unknown') else found.bottleneck


def _learner_is_fed(f: Utilization, waits: str) -> Verdict:
  rule = f'{waits}, less than {_NEVER:.0%}'
  fix = 'a larger --batch_size or more --learner_devices would help'
  if f.queue_is_full:
    return Verdict(
      'learner',
      f'replay is full and the learner never waits: the learner is the bottleneck; {fix}{_crowd(f)}',
      f'{rule}; the queue is {f.replay_fill:.0%} full, at least {_FULL:.0%}',
    )
  if f.actors_are_held_back:
    ratio = '' if f.is_queue else ', and so would a lower --samples_per_insert'
    return Verdict(
      'learner',
      'replay holds the actors back and the learner never waits: the learner is the bottleneck; '
      f'{fix}{ratio}{_crowd(f)}',
      f'{rule}; {f.held_back:.0%} of the environment groups wait for replay, at least {_HELD_BACK:.0%}',
    )
  if f.inference_busy >= _BUSY:
    return Verdict(
      'none',
      'the learner never waits and inference is always busy: the two are balanced; only more cores or '
      f'devices would help{_crowd(f)}',
      f'{rule}; inference is busy {f.inference_busy:.0%} of the time, at least {_BUSY:.0%}',
    )
  return Verdict(
    'learner',
    f'the learner never waits: it is the bottleneck, or barely keeps up; {fix}{_crowd(f)}',
    rule,
  )


def _learner_lacks_unrolls(f: Utilization, waits: str) -> Verdict:
  rule = f'{waits}, more than {_OFTEN:.0%}'
  if f.cores_of_others:
    return Verdict(
      'machine',
      f'the learner waits for unrolls, and other processes use {f.cores_of_others:.1f} of the '
      f'{f.cores:.0f} cores, those that environments start included: only free cores would help',
      f'{rule}; {f.cores_idle:.1f} cores are idle, and the nodes use {f.cores_used:.1f}',
    )
  if f.only_recorded:
    return Verdict(
      'replay',
      'the learner waits for recorded transitions: reading them is the bottleneck; more '
      f'--num_replay_shards or a larger --batch_size would help{_crowd(f)}',
      rule,
    )
  if f.stepping >= _BUSY:
    return Verdict(
      'environments',
      'the learner waits for unrolls and the actors spend their time in environments: the '
      f'environments are the bottleneck; more --num_actors would help{_crowd(f)}',
      f'{rule}; the actors step environments {f.stepping:.0%} of the time, at least {_BUSY:.0%}',
    )
  if f.acts_itself and f.waiting >= _BUSY:
    return Verdict(
      'inference',
      "the learner waits for unrolls and the actors compute actions: the actors' inference is the "
      f'bottleneck; more --num_actors or a smaller network would help{_crowd(f)}',
      f'{rule}; the actors compute actions {f.waiting:.0%} of the time, at least {_BUSY:.0%}',
    )
  if f.inference_busy >= _BUSY:
    busy = f'{rule}; inference is busy {f.inference_busy:.0%} of the time, at least {_BUSY:.0%}'
    if f.batch_fill < _FILLED:
      return Verdict(
        'batching',
        'the learner waits for unrolls and inference computes batches that are mostly empty: batching '
        'is the bottleneck; more --envs_per_actor or a larger --inference_timeout_ms would help'
        + _crowd(f),
        f'{busy}; its batches are {f.batch_fill:.0%} full, less than {_FILLED:.0%}',
      )
    quick = f.env_groups > 1 and f.stepping < _SELDOM
    fewer = (
      ', fewer requests (--env_groups=1), since the environments take little time' if quick else ''
    )
    return Verdict(
      'inference',
      'the learner waits for unrolls and inference is always busy: inference is the bottleneck; larger '
      f'batches (--envs_per_actor, --inference_batch_size){fewer}, more --actor_devices or '
      f'--inference_nodes would help{_crowd(f)}',
      busy,
    )
  if f.waiting >= _BUSY and math.isfinite(f.inference_busy):
    in_turn = ', --env_groups=2' if f.env_groups == 1 else ''
    return Verdict(
      'batching',
      'the learner waits for unrolls, the actors wait for actions and inference is often idle: requests '
      f'wait for each other; more --num_actors{in_turn} or a smaller --inference_timeout_ms would help'
      + _crowd(f),
      f'{rule}; the actors wait {f.waiting:.0%} of the time, at least {_BUSY:.0%}; inference is busy '
      f'{f.inference_busy:.0%} of the time, less than {_BUSY:.0%}',
    )
  return Verdict(
    'actors' if math.isfinite(f.stepping) else 'unknown',
    'the learner waits for unrolls: the actors are the bottleneck, and neither their environments nor '
    f'inference alone; more --num_actors would help{_crowd(f)}',
    rule,
  )


def _crowd(f: Utilization) -> str:
  """Returns a clause if no core is left, because of the program or of others."""
  if f.cores_of_others:
    return f' (other processes use {f.cores_of_others:.1f} of the {f.cores:.0f} cores)'
  if f.cores_used < _CROWDED * f.cores or not math.isfinite(f.cores_used * f.cores):
    return ''
  return f' (all {f.cores:.0f} cores are busy: only more cores help every part at once)'


def utilization(
  means: Mapping[str, Mapping[str, float]],
  config: Mapping[str, Any],
  graph: Graph,
  cores_used: float = math.nan,
  cores_idle: float = math.nan,
) -> Utilization:
  """Returns the utilization of a program.

  Args:
    means: the means of each node's measurements, by name.
    config: the program's options.
    graph: says which nodes act.
    cores_used: CPU seconds of all nodes per second.
    cores_idle: idle cores of their machine.
  """
  # A user's own program may have options of the same names with other meanings.
  config = {
    name: float(value)
    for name, value in config.items()
    if reading.is_number(value) and math.isfinite(value)
  }
  actors = [values for node, values in means.items() if ACTOR in graph.roles(node)]
  servers = [values for values in means.values() if 'inference_busy_share' in values]
  learners = [values for values in means.values() if 'learner_waiting_share' in values]
  num_groups = config.get('num_actors', 0) * config.get('env_groups', 0)
  num_groups *= config.get('num_replicas', 1)
  capacity = config.get('queue_size', config.get('replay_size', 0)) * config.get('num_replicas', 1)
  deferred = sum(values.get('deferred_requests', 0.0) for values in servers)
  size = sum(values.get('replay_size', math.nan) for values in learners)
  roles = {role for group in graph.groups for role in group.roles}
  return Utilization(
    learner_waiting=_mean(learners, 'learner_waiting_share'),
    stepping=_mean(actors, 'stepping_share'),
    waiting=_mean(actors, 'waiting_share'),
    inference_busy=_mean(servers, 'inference_busy_share'),
    batch_fill=_mean(servers, 'inference_batch_fill'),
    held_back=deferred / num_groups if servers and num_groups else math.nan,
    replay_capacity=capacity,
    replay_fill=size / capacity if learners and capacity else math.nan,
    first_fill=config.get('min_replay_size', 0) / max(config.get('replay_size', 1), 1),
    is_queue='queue_size' in config,
    env_groups=int(config.get('env_groups', 0)),
    cores_used=cores_used,
    cores=config.get('cpu_cores', math.nan),
    cores_idle=cores_idle,
    only_recorded=LOADER in roles and ACTOR not in roles,
  )


def of_program(
  means: Mapping[str, Mapping[str, float]],
  config: Mapping[str, Any],
  graph: Graph,
  cores_used: float = math.nan,
  cores_idle: float = math.nan,
) -> Verdict:
  """Returns what limits a program; see `utilization`."""
  figures = utilization(means, config, graph, cores_used, cores_idle)
  # With inference, the actors are threads of the learner's process, and the rules below apply.
  if any(
    {ACTOR, LEARNER} <= set(roles := graph.roles(node)) and INFERENCE not in roles for node in means
  ):
    return Verdict(
      'learner',
      'acting and learning are one compiled function: the device is the bottleneck; more --num_envs '
      'and more --updates_per_call use it better' + _crowd(figures),
      'one node acts and learns',
    )
  if any('repeated_parts' in values for values in means.values()):
    return _of_generations(figures)
  return verdict(figures)


def _of_generations(f: Utilization) -> Verdict:
  """Returns what limits evolution strategies, whose learner waits for all parts of a generation."""
  if not math.isfinite(f.learner_waiting):
    return UNKNOWN
  rule = f'the evolver waits {f.learner_waiting:.0%} of the time'
  if f.learner_waiting < _OFTEN:
    return Verdict(
      'learner',
      'the evolver seldom waits: its updates are the bottleneck; a smaller network or fewer '
      f'--num_pairs would help{_crowd(f)}',
      f'{rule}, less than {_OFTEN:.0%}',
    )
  rule = f'{rule}, more than {_OFTEN:.0%}; the workers play {f.stepping:.0%} of the time'
  if f.stepping >= _BUSY:
    return Verdict(
      'environments',
      'the workers play all the time: episodes are the bottleneck; more --num_workers, of at most '
      f'--virtual_workers, would help{_crowd(f)}',
      f'{rule}, at least {_BUSY:.0%}',
    )
  return Verdict(
    'actors',
    'workers wait for the last ones of each generation; more and so smaller --virtual_workers would '
    f'help{_crowd(f)}',
    f'{rule}, less than {_BUSY:.0%}',
  )


def _mean(nodes: list[Mapping[str, float]], name: str) -> float:
  known = [values[name] for values in nodes if name in values]
  return sum(known) / len(known) if known else math.nan
