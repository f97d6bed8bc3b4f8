"""Where the files of a run are, and those of its results."""

from __future__ import annotations

import dataclasses
import os

from benchmarks.results.declared import Entry


@dataclasses.dataclass(frozen=True)
class Places:
  """Paths of runs, and of the page with what it is made from.

  Attributes:
    runs: directory of the runs, which the repository ignores.
    docs: directory of the page, which the repository keeps.
  """

  runs: str
  docs: str

  def task_dir(self, entry: Entry) -> str:
    """Returns the directory of the runs of a row's task."""
    return os.path.join(self.runs, entry.task.name)

  def run_dir(self, entry: Entry, seed: int) -> str:
    """Returns the run directory."""
    return os.path.join(self.task_dir(entry), entry.row.label, str(seed))

  def attempts(self, entry: Entry, seed: int) -> str:
    """Returns the file that lists the commands of a run."""
    return self.run_dir(entry, seed) + '.attempts.json'

  def log(self, entry: Entry, seed: int) -> str:
    """Returns the file with the output of those commands."""
    return self.run_dir(entry, seed) + '.log'

  def records(self, entry: Entry) -> str:
    """Returns the file with what is kept of the runs of a row's task, see `records`."""
    return os.path.join(self.docs, 'data', entry.task.name + '.json')

  def policy(self, entry: Entry) -> str:
    """Returns the directory with the kept policy of a row."""
    return os.path.join(self.docs, 'policies', entry.name)

  def figure(self, name: str) -> str:
    """Returns the figure of a task; its path on the page is that from `docs`."""
    return os.path.join(self.docs, 'figures', name.replace('/', '-') + '.svg')

  @property
  def page(self) -> str:
    """The page."""
    return os.path.join(self.docs, 'index.md')
