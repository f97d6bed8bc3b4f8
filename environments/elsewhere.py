"""A batch of environments in a process under another interpreter, stepped through a pipe."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import subprocess
import traceback
from multiprocessing.connection import Connection
from typing import Any

import dm_env
import numpy as np
from acme import specs

from environments import crossing, entry, interpreters, user_file
from environments.base import BatchedEnvironment, Exhausted
from environments.nests import Nest

_ATTRIBUTES = 'num_envs', 'action_repeat', 'protocol'
_CLOSE_SECONDS = 10
# Of the errors that the environment may raise, those that its caller expects.
_RAISED = {'ValueError': ValueError, 'Exhausted': Exhausted}


class Elsewhere(BatchedEnvironment):
  """Environments of a process under another interpreter; what they print goes to stderr."""

  def __init__(self, python: str, name: str, num_envs: int, seed: int, options: str = ''):
    """Starts the process and makes the environments.

    Args:
      python: the absolute path of the interpreter.
      name: as in `registry.make`, as are the rest.
      num_envs: N.
      seed: of the batch.
      options: 'key=value,key=value'.

    Raises:
      ValueError: the interpreter cannot be used, or as in `registry.make`; one sentence.
    """
    if problem := interpreters.probe(python, (__name__,)).problem:
      raise ValueError(f'{python} {problem}.')
    carried = user_file.carried(name)
    self._pipe, there = multiprocessing.Pipe()
    with there:
      self._process = subprocess.Popen(
        entry.command(python, __name__, str(there.fileno()), options=('-X', 'faulthandler')),
        env={**os.environ, **interpreters.variables()},
        stdin=subprocess.DEVNULL,
        stdout=2,
        pass_fds=[there.fileno()],
      )
    try:
      made = self._call('make', carried, num_envs, seed, options)
    except BaseException:
      self.close()
      raise
    self.num_envs, self.action_repeat, self.protocol = made

  def reset(self) -> dm_env.TimeStep:
    """Starts an episode in every environment. See the base class."""
    return dm_env.TimeStep(*self._call('reset'))

  def step(self, action: np.ndarray) -> dm_env.TimeStep:
    """Steps all environments. See the base class."""
    return dm_env.TimeStep(*self._call('step', action))

  def observation_spec(self) -> Nest:
    """Returns the spec of one observation, or a nest of specs."""
    return self._call('observation_spec')

  def action_spec(self) -> specs.Array:
    """Returns the spec of one action."""
    found: specs.Array = self._call('action_spec')
    return found

  def render(self) -> np.ndarray | None:
    """Returns an image of the first environment. See the base class."""
    image: np.ndarray | None = self._call('render')
    return image

  def close(self) -> None:
    """Ends the process, which closes the environments."""
    self._pipe.close()
    try:
      self._process.wait(_CLOSE_SECONDS)
    except subprocess.TimeoutExpired:
      self._process.kill()
      self._process.wait()

  def _call(self, method: str, *arguments: Any) -> Any:
    try:
      self._pipe.send_bytes(crossing.dumps((method, arguments)))
      kind, value, self.game_over = pickle.loads(self._pipe.recv_bytes())
    except (EOFError, OSError) as error:
      raise RuntimeError(f'the process of the environment ended during {method}().') from error
    if kind:
      raise _RAISED.get(kind, RuntimeError)(value)
    return value


def main(argv: list[str]) -> None:
  """Serves a batch until the caller closes its end; the argument is the descriptor of this one."""
  from environments import registry  # The caller needs it no more than for itself.

  pipe = Connection(int(argv[1]))
  environment: BatchedEnvironment | None = None
  while True:
    try:
      method, arguments = pickle.loads(pipe.recv_bytes())
    except EOFError:
      break
    kind: str = ''
    value: Any = None
    try:
      if environment is None:
        environment = registry.make(*arguments)
        value = [getattr(environment, name) for name in _ATTRIBUTES]
      else:
        value = getattr(environment, method)(*arguments)
    except (ValueError, Exhausted) as error:
      kind, value = type(error).__name__, str(error)
    except Exception:
      kind, value = 'Exception', traceback.format_exc()
    value = tuple(value) if isinstance(value, dm_env.TimeStep) else value
    pipe.send_bytes(crossing.dumps((kind, value, getattr(environment, 'game_over', None))))
  if environment is not None:
    environment.close()
