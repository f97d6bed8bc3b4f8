"""A node on a Ray cluster, with a supervisor actor that does what each test says."""

import types

import pytest
import ray

from launchers import binding
from launchers.placement import Resources
from launchers.ray import node as ray_node
from launchers.ray.supervisor import Place, PollReply


class Actor:
  """Replies to each call of a method with what `replies` says; an exception is raised."""

  def __init__(self, **replies):
    self._replies = {name: iter(values) for name, values in replies.items()}

  def __getattr__(self, name):
    return types.SimpleNamespace(remote=lambda *args: [next(self._replies[name])])


@pytest.fixture
def start(tmp_path, monkeypatch):
  """Returns a function that starts a server whose actor has the given replies."""

  def get(future):
    (reply,) = future
    if isinstance(reply, Exception):
      raise reply
    return reply

  stub = types.SimpleNamespace(
    wait=lambda futures, timeout: (futures, []), get=get, exceptions=ray.exceptions
  )
  monkeypatch.setattr(ray_node, 'ray', stub)
  payload = tmp_path / 'node.pkl'
  payload.write_bytes(b'')

  def start(**replies):
    place = Place('h1', '10.0.0.1', 'id', [5000], '', True)
    actor = Actor(reserve=[place], start=[None], **replies)
    node = ray_node.RayNode('replay', 1, Resources(), None, lambda: actor, 1.0, [])
    node.place = place
    task = binding.NodeTask('replay', 0, str(payload))
    node.start(task, str(tmp_path / 'log'), {}, b'', lambda: None)
    return node

  return start


def _error():
  return ray.exceptions.RayTaskError('restart', 'a traceback', OSError('no free process'))


def test_a_server_that_could_not_be_restarted_now_may_be_restarted_later(start):
  ended, playing = PollReply(b'', 0, False, 1, None, 0.0), PollReply(b'', 0, False, None, None, 0.0)
  node = start(poll=[ended, playing, playing, playing], restart=[_error(), None])
  while node.exit_code() is None:
    pass
  assert node.exit_code() == 1
  node.restart()
  assert node.exit_code() == ray_node.LOST
  assert node.ending() == 'could not be restarted (no free process)' and node.can_restart()
  node.restart()
  assert node.exit_code() is None and node.exit_code() is None


def test_a_node_is_stopped_as_long_as_its_supervisor_says_so(start):
  replies = [PollReply(b'', 0, False, None, None, 0.0, stopped) for stopped in (True, False)]
  node = start(poll=[*replies, PollReply(b'', 0, False, 0, None, 0.0)])
  seen = []
  while node.exit_code() is None:
    seen.append(node.is_stopped())
  assert seen[-2:] == [True, False]


def test_a_node_is_lost_if_ray_has_died_on_the_machine_of_the_launcher(start):
  node = start(poll=[OSError('Broken pipe')])
  while node.exit_code() is None:
    pass
  assert node.exit_code() == ray_node.LOST
  assert node.ending().startswith('was lost with its machine or its Ray worker (Broken pipe)')


def test_a_server_that_is_no_longer_supervised_stays_down(start):
  node = start(poll=[_error()])
  while node.exit_code() is None:
    pass
  assert node.ending() == 'could not be supervised (no free process)' and not node.can_restart()
