"""Weights & Biases. It needs the environment of `wandb.txt`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import wandb

from viewing.trackers.records import Header, Media, Metrics, Outcome, Record
from viewing.trackers.sink import SinkError

_OFFLINE = ('offline', 'dryrun')


class WandbSink:
  """A run of W&B, online or, with WANDB_MODE=offline, as files for `wandb sync`.

  The number of a record is W&B's step. W&B's own process collects records in memory, and loses them if
  it is killed with this one.
  """

  keeps = False

  def __init__(self, project: str, axis: str):
    """Initialises the sink without connecting.

    Args:
      project: of W&B; WANDB_ENTITY and WANDB_BASE_URL are W&B's own.
      axis: the default x axis.
    """
    self._project = project
    self._axis = axis
    self._run: Any = None
    self._defined: set[str] = set()
    names = ('WANDB_BASE_URL', 'WANDB_ENTITY')
    self.destination = ' '.join([*(os.environ.get(name, '') for name in names), project])

  def start(self, header: Header, key: str, run_id: str) -> tuple[str, str]:
    """See `Sink`."""
    offline = os.environ.get('WANDB_MODE', 'online') in _OFFLINE
    settings = wandb.Settings(
      silent=True,
      console='off',
      disable_git=True,
      disable_code=True,
      save_code=False,
      # This process is not the run.
      x_disable_meta=True,
      x_disable_stats=True,
      x_disable_machine_info=True,
      x_save_requirements=False,
    )
    try:
      self._run = wandb.init(
        project=self._project,
        id=run_id or key,
        name=header.name,
        config=dict(header.config),
        resume=None if offline else 'allow',
        allow_val_change=True,
        settings=settings,
      )
    except (wandb.errors.Error, OSError) as error:
      said = str(error).strip().partition('\n')[0].rstrip('.')
      raise SinkError(
        f'--to=wandb: {said}; set WANDB_API_KEY, or WANDB_MODE=offline to write files only.'
      ) from error
    self._run.config.update({'run_dir': header.run_dir}, allow_val_change=True)
    files = os.path.dirname(self._run.dir)
    return self._run.id, f'{files}, for `wandb sync`' if offline else self._run.url

  def log(self, records: Sequence[Record], first: int) -> None:
    """See `Sink`. W&B's own process sends the records, however long it takes."""
    for number, record in enumerate(records, first):
      if isinstance(record, Media) and record.path.endswith('.jsonl'):
        self._run.save(record.path, base_path=os.path.dirname(record.path), policy='now')
        values = {}
      elif isinstance(record, Media):
        values = _media(record)
      else:
        values = self._metrics(record)
      if values:
        self._run.log(values, step=number)

  def end(self, outcome: Outcome) -> None:
    """See `Sink`."""
    self._run.summary.update({f'final/{name}': v for name, v in outcome.summary.items()})
    self._run.summary.update({'state': outcome.state, 'exit_code': outcome.exit_code})
    code = 1 if outcome.exit_code is None else outcome.exit_code
    self._run.finish(exit_code=0 if outcome.state == 'finished' else code or 1)
    self._run = None

  def close(self) -> None:
    """See `Sink`."""
    if self._run is not None:
      self._run.finish()
      self._run = None

  def _metrics(self, record: Metrics) -> dict[str, Any]:
    group = record.prefix.partition('/')[0]
    processes = group == 'processes'
    if record.prefix not in self._defined:
      self._defined.add(record.prefix)
      axis = 'processes/seconds' if processes else self._axis
      self._run.define_metric(f'{record.prefix}/*', step_metric=axis)
    axes = {f'processes/{n}' if processes else n: v for n, v in record.axes.items()}
    when = {'_timestamp': record.time} if record.time else {}
    return {f'{record.prefix}/{name}': v for name, v in record.values.items()} | axes | when


def _media(record: Media) -> dict[str, Any]:
  try:
    if record.path.endswith('.svg'):
      with open(record.path) as f:
        return {record.name: wandb.Html(f.read(), inject=False)}
    if record.path.endswith('.png'):
      return {record.name: wandb.Image(record.path)}
    caption = f'{record.actor_steps} actor_steps'
    video = wandb.Video(record.path, caption=caption, format='gif')
    return {record.name: video, 'actor_steps': record.actor_steps}
  except (OSError, ValueError):  # It has just been deleted.
    return {}
