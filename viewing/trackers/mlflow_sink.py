"""MLflow. It needs the environment of `mlflow.txt`."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator, Sequence
from typing import Any

import mlflow
from mlflow.entities import Metric, Param
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient

from viewing.trackers.records import Header, Media, Metrics, Outcome, Record
from viewing.trackers.sink import SinkError

_KEY = 'launchpod.export'
_MOST_METRICS, _MOST_PARAMS = 1000, 100  # In one call.
_LONGEST = 500  # Characters of a parameter that every server takes.
_STATUS = {'finished': 'FINISHED', 'failed': 'FAILED', 'stopped': 'KILLED', 'killed': 'KILLED'}


class MlflowSink:
  """A run on the server, or in the database, that MLFLOW_TRACKING_URI names.

  A database drops a metric that it already has with the same step, time and value.
  """

  keeps = True

  def __init__(self, project: str, axis: str):
    """Initialises the sink without connecting.

    Args:
      project: name of the experiment.
      axis: becomes MLflow's step.
    """
    for talkative in ('mlflow', 'alembic'):
      logging.getLogger(talkative).setLevel(logging.WARNING)
    self._uri = mlflow.get_tracking_uri()
    self._experiment = project
    self._axis = axis
    self._client: Any = None
    self._run = ''
    self.destination = f'{self._uri} {project}'

  def start(self, header: Header, key: str, run_id: str) -> tuple[str, str]:
    """See `Sink`."""
    with _explained():
      self._client = MlflowClient(self._uri, registry_uri=self._uri)
      self._run = run_id or self._find(key) or self._create(header, key)
      self._client.update_run(self._run, status='RUNNING')
      self._log_params(header)
    return self._run, f'run {self._run} of {self._experiment!r} at {self._uri}'

  def log(self, records: Sequence[Record], first: int) -> None:
    """See `Sink`."""
    with _explained():
      metrics = [m for r in records if isinstance(r, Metrics) for m in self._metrics(r)]
      for begin in range(0, len(metrics), _MOST_METRICS):
        self._client.log_batch(self._run, metrics=metrics[begin : begin + _MOST_METRICS])
      for record in records:
        if isinstance(record, Media):
          folder = 'videos' if record.actor_steps else None
          with contextlib.suppress(FileNotFoundError):  # It has just been deleted.
            self._client.log_artifact(self._run, record.path, folder)

  def end(self, outcome: Outcome) -> None:
    """See `Sink`."""
    with _explained():
      step = int(outcome.summary.get(self._axis, 0))
      now = int(1000 * time.time())
      final = [Metric(f'final/{name}', v, now, step) for name, v in outcome.summary.items()]
      self._client.log_batch(self._run, metrics=final)
      self._client.set_tag(self._run, 'state', outcome.state)
      self._client.set_tag(self._run, 'exit_code', str(outcome.exit_code))
      self._client.set_terminated(self._run, _STATUS[outcome.state])

  def close(self) -> None:
    """See `Sink`."""

  def _find(self, key: str) -> str:
    """Returns the run that an export created before it was killed; '' if there is none."""
    experiment = self._client.get_experiment_by_name(self._experiment)
    if experiment is None:
      return ''
    found = self._client.search_runs([experiment.experiment_id], f"tags.`{_KEY}` = '{key}'")
    return found[0].info.run_id if found else ''

  def _create(self, header: Header, key: str) -> str:
    experiment = self._client.get_experiment_by_name(self._experiment)
    number = (
      self._client.create_experiment(self._experiment)
      if experiment is None
      else experiment.experiment_id
    )
    tags = {_KEY: key, 'run_dir': header.run_dir, 'mlflow.source.name': 'launchpod'}
    return self._client.create_run(number, run_name=header.name, tags=tags).info.run_id

  def _log_params(self, header: Header) -> None:
    """Sends the options. Those that a resume has changed become tags: parameters are for good."""
    there = self._client.get_run(self._run).data.params
    params = {name: str(value)[:_LONGEST] for name, value in _flat(header.config)}
    new = [Param(name, value) for name, value in params.items() if name not in there]
    for begin in range(0, len(new), _MOST_PARAMS):
      self._client.log_batch(self._run, params=new[begin : begin + _MOST_PARAMS])
    for name in params.keys() & there.keys():
      if params[name] != there[name]:
        self._client.set_tag(self._run, f'resumed.{name}', params[name])

  def _metrics(self, record: Metrics) -> Iterator[Metric]:
    axis = 'seconds' if record.prefix.startswith('processes/') else self._axis
    step, when = int(record.axes.get(axis, 0)), int(1000 * record.time)
    for name, value in record.values.items():
      yield Metric(f'{record.prefix}/{name}', value, when, step)
    for name in record.axes.keys() - {axis, 'seconds'}:
      if 'actor_steps_per_second' in record.values:  # Of the node that counts.
        yield Metric(name, record.axes[name], when, step)


def _flat(config: Any, prefix: str = '') -> Iterator[tuple[str, Any]]:
  for name, value in config.items():
    if isinstance(value, dict):
      yield from _flat(value, f'{prefix}{name}.')
    else:
      yield f'{prefix}{name}', value


@contextlib.contextmanager
def _explained() -> Iterator[None]:
  """Turns MLflow's exceptions into one sentence."""
  try:
    yield
  except MlflowException as error:
    said = ' '.join(str(error).split())[:300]
    raise SinkError(
      f'--to=mlflow: {mlflow.get_tracking_uri()} does not take the run: {said}'
    ) from error
