"""The behaviour required of every engine: one suite of scenarios, run by a test class per engine.

A test module defines a fixture `engine` that returns an `Engine`, and a class that inherits from
`Contract`. The class may add engine-specific assertions to a scenario.

The pods of Kubernetes and the tasks of SkyPilot have no launcher: the cluster itself starts them. Their
classes inherit from `NodeContract`, which leaves out three scenarios:

* Ctrl-C at the launcher, and its death: there is none. A pod's processes end with the pod.
* A user's file that is not where the nodes run: pods build the graph, so the image must have the file.
"""

import abc
import dataclasses
import functools
import json
import math
import os
import pathlib
import re
import signal
import sys

import launchpad as lp
import numpy as np
import psutil
import pytest

from environments import interpreters
from launchers.placement import Resources
from tests.launchers import every_type, nodes, strangers
from tests.waiting import DEADLINE, wait_until

ROOT = pathlib.Path(__file__).parent.parent.parent
RESTARTED = Resources(restart='on_failure', restart_backoff=0.1)
# A directory name with the special characters of sh, sbatch and JSON.
ODD = 'a "run" #1 of \'mine\', 50% $HOME {x}'
KILLED = r'node (\w+)/0(?: on \S+)? was killed by SIGKILL; restarting in (\S+ s \(\d+ of \d+)'


# What the classes of clusters, whose jobs take seconds to start, run in `make test`.
_ALWAYS = {
  'test_a_crash_ends_the_program_with_the_traceback_last',
  'test_killed_nodes_are_restarted_and_a_server_has_its_address_again',
  'test_no_node_outlives_a_killed_launcher',
  'test_nodes_use_the_courier_of_this_repository_which_serves_no_stranger',
}


class Engine(abc.ABC):
  """The interface of an engine to the scenarios.

  The checks of what a launch printed hold for engines that call `supervise.supervise`.

  Attributes:
    deadline: timeout of every wait, in seconds.
    servers: programs of the engine's own among the processes of a run, which protect their ports.
    doors: how many ports a stranger finds in the processes of the run that he tries.
  """

  deadline = DEADLINE
  servers = ()
  doors = 3

  @abc.abstractmethod
  def launch(self, program, run_dir, placement=None, node_timeout=math.inf):
    """Runs a program in an existing directory; returns the exit code and the launcher's output.

    Groups without an entry in `placement` get `Resources()`.
    """

  def start(self, run_dir):
    """Starts a launcher in a separate process, with `Echo` and a node that blocks in a call.

    The blocked node writes its process id to the file `pid` of the directory.

    Returns:
      A `subprocess.Popen` with pipes in `stdout` and `stderr`, or one of them.
    """
    raise NotImplementedError('an engine whose class inherits from Contract starts a launcher')

  def kill_launcher(self, launcher):
    """Kills the process that supervises the nodes."""
    launcher.kill()

  def check_killed(self, code, output):
    """Checks the exit of a launcher after `kill_launcher`."""
    assert code == -signal.SIGKILL

  @abc.abstractmethod
  def nodes(self, run_dir):
    """Returns the process ids of the running nodes of a launch."""

  def said_nothing(self, output):
    """Returns whether a launch printed no more than its engine always prints."""
    return output == ''

  def check_failed(self, output, node, how, last=''):
    """Checks that a launch printed which node ended the program and how, and its log's last line."""
    assert re.search(rf'error: node {node}( on \S+)? {how}; the end of ', output)
    assert output.rstrip().endswith(last)

  def check_restarted(self, output, labels):
    """Checks that a launch restarted the first nodes of these groups, in any order, after SIGKILL."""
    expected = [
      (label, f'{0.1 * 2**i:g} s ({i + 1} of 20')
      for label in set(labels)
      for i in range(labels.count(label))
    ]
    assert sorted(re.findall(KILLED, output)) == sorted(expected)

  def check_job_restarted(self, output):
    """Checks that a launch restarted both nodes of a job once, after the second was killed."""
    said = (
      r'node job/1(?: on \S+)? was killed by SIGKILL; restarting all 2 nodes of its job in 0.1 s'
    )
    assert re.search(rf'{said} \(1 of', output) and output.count('; restarting') == 1

  def check_hung(self, output, node):
    """Checks that a launch with node_timeout=5 killed and restarted a node without a heartbeat."""
    assert re.search(
      rf'node {node}( on \S+)? has sent no heartbeat for .* --node_timeout=5 allows; killing',
      output,
    )
    assert re.search(KILLED, output)

  def wait_until(self, condition):
    """Waits until `condition()` is true; returns its value."""
    return wait_until(condition, deadline=self.deadline, poll=0.05)


def runs(pid):
  """Returns whether a process runs. A zombie, which its parent has not reaped, does not."""
  try:
    return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
  except psutil.NoSuchProcess:
    return False


def logs(run_dir):
  """Returns the text of all node logs."""
  return ''.join(path.read_text() for path in (run_dir / 'logs').iterdir())


def poison(directory, imported):
  """Fills a directory with modules that hide others, and write their name to a file if imported."""
  ours = {path.name for path in ROOT.iterdir() if (path / '__init__.py').exists()}
  for name in {*sys.stdlib_module_names, *ours, 'absl', 'courier', 'launchpad', 'numpy', 'ray'}:
    (directory / name).mkdir(parents=True)
    text = f"open({str(imported)!r}, 'a').write({name!r} + ' ')\nraise ImportError({name!r})\n"
    (directory / name / '__init__.py').write_text(text)


class NodeContract:
  """The scenarios that every engine must pass."""

  def test_the_nodes_of_a_job_restart_together(self, engine, tmp_path):
    paths = [tmp_path / str(i) for i in range(2)]
    program = nodes.program((nodes.Stopper, False, os.pathsep.join(map(str, paths))))
    with program.group('job'):
      for path, dies in zip(paths, (False, True), strict=True):
        program.add_node(lp.PyClassNode(nodes.OneOfAJob, str(path), dies))
    placement = {'job': dataclasses.replace(RESTARTED, one_job=True)}
    code, output = engine.launch(program, tmp_path, placement)
    assert code == 0, output
    assert {path.read_text() for path in paths} == {'restarted'}
    engine.check_job_restarted(output)

  def test_stop_from_a_node_ends_every_process_with_code_0(self, engine, tmp_path):
    run_dir, answer, blocked = tmp_path / ODD, tmp_path / 'answer', tmp_path / 'pid'
    run_dir.mkdir()
    program = nodes.program(
      (nodes.Caller, True, str(answer)),
      (nodes.Blocked, True, str(blocked)),
      (nodes.Stopper, False, os.pathsep.join(map(str, (answer, blocked)))),
    )
    code, output = engine.launch(program, run_dir)
    assert code == 0 and engine.said_nothing(output), output
    assert answer.read_text() == 'hello node'
    assert not runs(int(blocked.read_text()))
    assert engine.nodes(run_dir) == []
    assert 'Traceback' not in logs(run_dir)

  def test_nodes_of_every_type_of_launchpad_run(self, engine, tmp_path):
    answer = tmp_path / 'answer'
    code, output = engine.launch(every_type.program(str(answer)), tmp_path)
    assert code == 0 and engine.said_nothing(output), output
    assert answer.read_text() == 'hello reader: hello inserter'
    assert engine.nodes(tmp_path) == []
    assert 'Traceback' not in logs(tmp_path)

  def test_a_crash_ends_the_program_with_the_traceback_last(self, engine, tmp_path):
    blocked = tmp_path / 'pid'
    program = nodes.program(
      (nodes.Blocked, True, str(blocked)), (nodes.Crasher, False, str(blocked))
    )
    code, output = engine.launch(program, tmp_path)
    assert code == 1
    last = 'RuntimeError: the node broke on purpose'
    engine.check_failed(output, 'node1/0', 'exited with code 1', last)
    assert (tmp_path / 'logs' / 'node1-0.log').read_text().rstrip().endswith(last)
    assert not runs(int(blocked.read_text()))
    assert engine.nodes(tmp_path) == []

  def test_killed_nodes_are_restarted_and_a_server_has_its_address_again(self, engine, tmp_path):
    pid, again, mortal = (str(tmp_path / name) for name in ('pid', 'again', 'mortal'))
    program = lp.Program('test')
    echo = program.add_node(lp.CourierNode(nodes.EchoWithPid, pid), label='echo')
    program.add_node(lp.PyClassNode(nodes.Killer, echo, pid, again), label='killer')
    program.add_node(lp.PyClassNode(nodes.Mortal, echo, mortal), label='mortal')
    stopper = lp.PyClassNode(nodes.Stopper, os.pathsep.join((again, mortal)))
    program.add_node(stopper, label='stopper')
    code, output = engine.launch(program, tmp_path, {'echo': RESTARTED, 'mortal': RESTARTED})
    assert code == 0, output
    assert pathlib.Path(again).read_text() == 'hello again'
    assert pathlib.Path(mortal).read_text() == 'hello start 3'
    engine.check_restarted(output, ['echo', 'mortal', 'mortal'])
    assert 'Traceback' not in logs(tmp_path)

  def test_nodes_use_the_courier_of_this_repository_which_serves_no_stranger(
    self, engine, tmp_path
  ):
    """A stranger gets nothing at any port of a run, and sees no key."""
    found, loaded = str(tmp_path / 'found'), str(tmp_path / 'loaded')
    program = lp.Program('test')
    echo = program.add_node(lp.CourierNode(nodes.Echo), label='echo')
    rows = program.add_node(lp.CourierNode(nodes.Rows), label='rows')
    program.add_node(
      lp.PyClassNode(nodes.Stranger, echo, rows, found, engine.servers), label='stranger'
    )
    program.add_node(lp.PyClassNode(nodes.Libraries, echo, loaded), label='libraries')
    stopper = lp.PyClassNode(nodes.Stopper, os.pathsep.join((found, loaded)))
    program.add_node(stopper, label='stopper')
    code, output = engine.launch(program, tmp_path)
    assert code == 0, output
    own = [str(ROOT / 'courier' / '__init__.py')]
    assert json.loads((tmp_path / 'loaded').read_text()) == [own, own]
    seen = json.loads((tmp_path / 'found').read_text())
    assert seen == {'answers': engine.doors * [strangers.CLOSED], 'unpickled': False, 'shown': []}
    # No file of the run keeps the key either.
    left = [path for path in tmp_path.rglob('*') if path.is_file()]
    assert not [path for path in left if b'PRIVATE KEY' in path.read_bytes()]
    assert 'PRIVATE KEY' not in output

  def test_a_killed_node_without_restarts_ends_the_program_and_is_named(self, engine, tmp_path):
    pid = str(tmp_path / 'pid')
    program = lp.Program('test')
    echo = program.add_node(lp.CourierNode(nodes.EchoWithPid, pid), label='echo')
    program.add_node(lp.PyClassNode(nodes.Killer, echo, pid, str(tmp_path / 'no')), label='killer')
    code, output = engine.launch(program, tmp_path)
    assert code == 1
    engine.check_failed(output, 'echo/0', 'was killed by SIGKILL')
    assert not (tmp_path / 'no').exists()
    assert engine.nodes(tmp_path) == []

  def test_a_node_that_hangs_is_killed_after_its_stacks_are_logged(self, engine, tmp_path):
    answer = tmp_path / 'answer'
    program = lp.Program('test')
    program.add_node(lp.PyClassNode(nodes.HangsOnce, str(answer)), label='hanger')
    program.add_node(lp.PyClassNode(nodes.Stopper, str(answer)), label='stopper')
    code, output = engine.launch(
      program, tmp_path, dict.fromkeys(program.groups, RESTARTED), node_timeout=5
    )
    assert code == 0 and answer.read_text().startswith('restart '), output
    engine.check_hung(output, 'hanger/0')
    assert '_hold_the_interpreter_lock' in (tmp_path / 'logs' / 'hanger-0.log').read_text()


class Contract(NodeContract):
  """The scenarios that every engine with a launcher must pass."""

  def test_a_users_own_file_need_not_be_where_its_nodes_run(self, engine, tmp_path):
    program = nodes.users_own(tmp_path / 'mine.py', tmp_path / 'written')
    code, output = engine.launch(program, tmp_path)
    assert code == 0, output
    assert (tmp_path / 'written').read_text() == 'Writer'

  def test_a_group_runs_with_an_interpreter_of_its_own(self, engine, other_python, tmp_path):
    answer = tmp_path / 'answer'
    program = lp.Program('test')
    numbers = np.array([1.5, 2.5])  # Which NumPy 2 pickles by names that NumPy 1 does not have.
    other = program.add_node(lp.CourierNode(nodes.Interpreter, numbers), label='other')
    program.add_node(lp.PyClassNode(nodes.Asker, other, str(answer)), label='asker')
    program.add_node(lp.PyClassNode(nodes.Stopper, str(answer)), label='stopper')
    code, output = engine.launch(program, tmp_path, {'other': Resources(python=other_python)})
    assert code == 0, output + logs(tmp_path)
    total, version, path = json.loads(answer.read_text())
    assert total == 4.0 and tuple(version) == interpreters.probe(other_python, ()).version
    foreign = [place for place in path if f'python3.{sys.version_info[1]}' in place]
    assert str(ROOT) in path and not foreign

  def test_nodes_use_the_courier_of_this_repository_which_serves_no_stranger(
    self, engine, tmp_path, monkeypatch
  ):
    """Nor does a process import anything from the launcher's working directory."""
    project, imported, run_dir = (tmp_path / name for name in ('project', 'imported', 'run'))
    poison(project, imported)
    monkeypatch.chdir(project)
    run_dir.mkdir()
    super().test_nodes_use_the_courier_of_this_repository_which_serves_no_stranger(engine, run_dir)
    assert not imported.exists(), imported.read_text()

  def _started(self, engine, run_dir):
    """Starts a launcher and waits until its nodes run; returns the launcher."""
    launcher = engine.start(run_dir)
    try:
      # The node that writes its pid may run before the other one's process has begun.
      engine.wait_until(
        lambda: (
          launcher.poll() is not None
          or ((run_dir / 'pid').exists() and len(engine.nodes(run_dir)) >= 2)
        )
      )
      assert launcher.poll() is None
    except BaseException:
      launcher.kill()
      raise
    return launcher

  def test_ctrl_c_at_the_launcher_ends_every_process(self, engine, tmp_path):
    launcher = self._started(engine, tmp_path)
    try:
      launcher.send_signal(signal.SIGINT)
      output, errors = launcher.communicate(timeout=engine.deadline)
    finally:
      launcher.kill()
    assert launcher.returncode == 130
    said = (output or '') + (errors or '')
    assert engine.said_nothing(said), said
    assert engine.nodes(tmp_path) == []

  def test_no_node_outlives_a_killed_launcher(self, engine, tmp_path):
    launcher = self._started(engine, tmp_path)
    try:
      engine.kill_launcher(launcher)
      output, _ = launcher.communicate(timeout=engine.deadline)
    finally:
      launcher.kill()
    engine.check_killed(launcher.returncode, output)
    engine.wait_until(lambda: not engine.nodes(tmp_path))


def rest_is_nightly(scenarios):
  """Marks the scenarios of a class nightly, except `_ALWAYS`; other engines run them in `make test`."""
  for name in dir(scenarios):
    if name.startswith('test_') and name not in _ALWAYS:
      setattr(scenarios, name, nightly(getattr(scenarios, name)))
  return scenarios


def nightly(scenario):
  """Returns a nightly copy of a scenario."""

  @pytest.mark.nightly  # Other classes share the original.
  @functools.wraps(scenario)
  def copy(*args, **kwargs):
    scenario(*args, **kwargs)

  return copy
