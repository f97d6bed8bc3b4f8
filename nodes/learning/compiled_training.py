"""Training by Anakin's compiled loop, whose calls act and learn."""

from __future__ import annotations

import math
import threading
from typing import Any

import jax
import numpy as np

from agents import optimizers
from agents.agent import Agent
from agents.anakin.loop import AnakinLoop, AnakinState, Report
from agents.seeding import Seed
from agents.types import Nest
from nodes.learning import replicas, serialisation, warm_start
from nodes.learning.checkpointer import Checkpointer
from nodes.learning.finite import raise_first_not_finite
from nodes.learning.training import Member, Mixer, Training, newest_checkpoint
from nodes.runtime import activity, lifecycle
from nodes.runtime.options import RunOptions
from rundir import checkpoints, saved_params


class CompiledTraining(Training):
  """Reports, writes checkpoints and stops only between calls of the loop.

  A run resumed from a checkpoint is identical to an uninterrupted one. With a mixer, each call is a
  local update; a peer that restarts without a checkpoint continues from the parameters of a neighbour.

  The loop may be spread over several replicas. Each has a training, and all make the same calls. Between
  two calls they tell each other whether one of them is to stop, or a checkpoint is due, since it takes
  all to save the state. The first replica alone reports and writes.

  Attributes:
    published: the counters of the newest parameters, and these, on the devices.
  """

  def __init__(
    self,
    agent: Agent,
    loop: AnakinLoop,
    name: str,
    run: RunOptions,
    learner_dir: str,
    monitor: Any,
    stop: threading.Event,
    *,
    seed: Seed,
    params_seed: Seed | None = None,
    mixer: Mixer | None = None,
    member: Member | None = None,
    replica: int = 0,
  ):
    """Restores or initialises the state, and compiles.

    Args:
      agent: the algorithm.
      loop: the compiled loop.
      name: as in `Training`, and so are the next four.
      run: when training ends; it ends with the first call that reaches `num_steps`.
      learner_dir: see above.
      monitor: see above.
      stop: see above.
      seed: of all random numbers, except the initial parameters if there is a `params_seed`.
      params_seed: of the initial parameters; None for `seed`.
      mixer: changes the parameters after every call; None to keep them.
      member: lets the learner continue as another one of a population has; None for one that is alone.
        Its updates may be not finite: then it keeps the learner state before them.
      replica: index of this replica; the monitor of all but the first is None.
    """
    super().__init__(
      name,
      run,
      learner_dir,
      monitor,
      stop,
      mixer=mixer,
      member=member,
      writes=replica == 0,
      report_period=0.25,
    )
    self._replica = replica
    self._agent, self._loop = agent, loop
    self._seed, self._params_seed = seed, params_seed
    self._counters = {'actor_steps': 0, 'environment_frames': 0, 'learner_steps': 0}
    self._metrics: dict[str, float] = {}
    self._ended = np.zeros(3)  # Episodes, return sum and length sum since the last report.
    self._state = self._begin()
    self._reporter.count(self._counters)
    with activity.doing(activity.COMPILING):
      loop.compile(self._state)
    self._measured = dict(self._counters)
    self._publish()

  def _begin(self) -> AnakinState:
    """Returns the state to begin with, and sets its counters.

    It is that of the checkpoint, if there is one; of a peer that has restarted without one, a
    neighbour's; otherwise a new one.
    """
    loop, run_dir = self._loop, self._run_options.run_dir
    checkpoint, has_initial = self._find_beginning()
    if checkpoint is not None:
      self._counters = dict(checkpoint.counts)
      return loop.put(serialisation.restore(checkpoint, loop.shapes()))
    if self._mixer and lifecycle.restart_count():
      found = self._mixer.fetch_params()
      if found is not None:
        return self._adopt_neighbour_state(*found)
    state = loop.init(self._seed.key())
    if has_initial:
      learner = jax.device_get(state.learner)
      learner = warm_start.with_initial_params(self._agent, learner, run_dir)
      state = loop.put(state._replace(learner=learner))
    elif self._params_seed is not None:
      state = state._replace(learner=loop.init(self._params_seed.key()).learner)
    return state

  def _find_beginning(self) -> tuple[checkpoints.Checkpoint | None, bool]:
    """Returns the checkpoint to begin with, if any, and whether the run has initial parameters.

    Every replica reads those that the first one has found.

    Raises:
      lifecycle.NonRetryableError: this host does not have them.
    """
    run_dir, replica = self._run_options.run_dir, self._replica
    checkpoint = newest_checkpoint(self._learner_dir) if replica == 0 else None
    found = [checkpoint.counts['learner_steps'] if checkpoint else -1]
    found += [int(saved_params.has_initial(run_dir))]
    if jax.process_count() > 1:
      with activity.doing(activity.WAITING_FOR_REPLICAS):
        found = list(map(int, replicas.broadcast(np.array(found), replica)))
    learner_steps, has_initial = found
    if replica and learner_steps >= 0:
      files = checkpoints.steps(checkpoints.directory(self._learner_dir))
      if learner_steps not in files:
        raise self._not_shared(f'the checkpoint of learner step {learner_steps}')
      checkpoint = checkpoints.read(files[learner_steps])
    if replica and has_initial and not saved_params.has_initial(run_dir):
      raise self._not_shared('the initial parameters')
    return checkpoint, bool(has_initial)

  def _not_shared(self, what: str) -> lifecycle.NonRetryableError:
    return lifecycle.NonRetryableError(
      f'{self._run_options.run_dir} on the host of {self._name} lacks {what} that the first replica has '
      'found; put --run_dir on a file system that all hosts share.'
    )

  def _adopt_neighbour_state(self, counts: dict[str, int], params: Any) -> AnakinState:
    """Returns a state with a neighbour's parameters, and takes over its counters.

    The peer's own counters are lost. With the neighbour's it finishes when the others do, and its
    learning rate is theirs: a learner step of GALA is one gradient step. The optimizer's moments are
    new.
    """
    self._counters = dict(counts)
    seed = self._seed.child('restart', lifecycle.restart_count())
    state = self._loop.init(seed.key())
    learner = jax.device_get(state.learner)
    learner = self._agent.with_params(learner, serialisation.from_data(params, learner.params))
    steps = counts['learner_steps']
    learner = learner._replace(
      learner_steps=np.int64(steps).astype(np.int32),  # Wraps, as the counter in the loop does.
      opt_state=optimizers.with_count(learner.opt_state, steps),
    )
    return self._loop.put(state._replace(learner=learner))

  def _counts(self) -> dict[str, int]:
    return dict(self._counters)

  def _is_trained(self) -> bool:
    return self._counters['actor_steps'] >= self._run_options.num_steps

  def _step(self) -> None:
    """Calls the loop once, updates the counters, and mixes the parameters.

    Raises:
      lifecycle.NonRetryableError: if an update is not finite; the previous state is donated by then.
    """
    activity.mark(activity.COMPILED_LOOP)
    state, on_device = self._loop.train(self._state)
    report: Report = jax.device_get(on_device)
    # The counter on the devices is an int32, which wraps.
    updates = (int(report.learner_steps) - self._counters['learner_steps']) % 2**32
    metrics = {name: m[len(m) - updates :] for name, m in report.metrics.items()}
    if updates and not report.finite:
      if self._member is None:
        raise_first_not_finite(self._counters['learner_steps'], updates, metrics)
      self._member.diverge()
      state, updates = self._with_old_learner(), 0
    self._state = state
    steps = int(report.episodes.actor_steps)
    self._counters['actor_steps'] += steps
    self._counters['environment_frames'] += steps  # JAX environments do not repeat actions.
    self._counters['learner_steps'] += updates
    self._publish()
    if updates:
      self._metrics = {name: float(m[-1]) for name, m in metrics.items()}
    self._ended += [
      report.episodes.episodes,
      report.episodes.return_sum,
      report.episodes.length_sum,
    ]
    if self._mixer:
      learner = self._state.learner
      params = self._mixer.mix(learner.params, self._stop.is_set)
      self._state = self._state._replace(learner=learner._replace(params=params))
      self._publish()
    if self._member:
      episodes, return_sum, _ = map(float, report.episodes[1:])
      self._member.played(steps, episodes, return_sum)
      self._continue_as(self._member.exchange(self._state.learner, self._counters))

  def _continue_as(self, learner: Any | None) -> None:
    """Continues with another learner state, as NumPy arrays; None to keep the present one."""
    if learner is not None:
      self._state = self._loop.put(self._state._replace(learner=learner))
      self._publish()

  def _with_old_learner(self) -> AnakinState:
    """Returns the learner state before the last call, with new environments and no replay.

    Those that the call leaves may not be finite either.
    """
    seed = self._seed.child('diverged', self._counters['actor_steps'])
    return self._loop.init(seed.key())._replace(learner=self._state.learner)

  def run(self) -> None:
    """Trains, writes checkpoints and the final parameters, and reports the end."""
    super().run()
    # A stop that only another replica was asked for; the launcher stops this one once that one has gone.
    with activity.doing(activity.WAITING_FOR_REPLICAS):
      self._stop.wait()

  def _after_step(self, checkpointer: Checkpointer) -> bool:
    self._reporter.maybe_report()
    # All replicas stop after the same call, and save with the first one, whose checkpoint is due.
    stops, saves = replicas.any_of((self._stop.is_set(), checkpointer.due()))
    if stops:
      raise lifecycle.Stopped
    return saves

  def _publish(self) -> None:
    self.published = dict(self._counters), self._state.learner.params

  def _save(self) -> tuple[dict[str, int], AnakinState]:
    return self._counts(), self._loop.get(self._state)

  def _final_params(self) -> Nest:
    return jax.device_get(self._state.learner.params)

  def _end_exchange(self) -> None:
    super()._end_exchange()
    if self._member:
      learner, stops = self._state.learner, self._stop.is_set
      self._continue_as(self._member.finish(learner, self._counters, stops))

  def _finish(self, params: Nest) -> dict[str, float]:
    activity.mark(activity.IDLE)  # For as long as the monitor is away.
    self._reporter.report_now(self._stop.is_set)
    return {}

  def _measure(self, seconds: float) -> dict[str, float]:
    rates = {
      f'{name}_per_second': (count - self._measured[name]) / seconds
      for name, count in self._counters.items()
    }
    self._measured = dict(self._counters)
    (episodes, returns, lengths), self._ended = self._ended, np.zeros(3)
    return (
      self._metrics
      | self._counters
      | rates
      | {
        'episodes': float(episodes),
        'episode_return': returns / episodes if episodes else math.nan,
        'episode_length': lengths / episodes if episodes else math.nan,
      }
      | (self._mixer.measure() if self._mixer else {})
      | (self._member.measure() if self._member else {})
    )
