"""The parts of drills, without a program."""

import contextlib
import itertools
import json
import os
import shlex
import subprocess
import sys

import numpy as np
import psutil
import pytest

from benchmarks import own
from benchmarks.drills import (
  children,
  clock,
  family,
  flatness,
  network,
  sampler,
  schedule,
  slow_catch,
  unrolls,
)
from benchmarks.drills.checks import Refused
from benchmarks.drills.incarnations import Incarnation, Incarnations
from environments import user_file
from rundir import audit
from tests.benchmarks import smoke
from tests.waiting import wait_until

WAITS = 'import sys; print(flush=True); sys.stdin.read()'
# Holds memory and a descriptor until it gets a line.
HOLDS = (
  'import sys; held, file = bytearray(64 << 20), open("/dev/null")\n'
  'held[:] = b"x" * len(held); print(flush=True); sys.stdin.readline()\n'
  'del held; file.close(); print(flush=True); sys.stdin.read()'
)
# A "launcher" that starts what its argument names, says their ids once they run, and waits.
STARTS = (
  'import subprocess, sys\n'
  f'waits, pipe = [sys.executable, "-c", {WAITS!r}], subprocess.PIPE\n'
  'names = sys.argv[1].split(",")\n'
  'started = [subprocess.Popen([*waits, name], stdin=0, stdout=pipe) for name in names]\n'
  'for p in started: p.stdout.readline()\n'
  'print(*(p.pid for p in started), flush=True); sys.stdin.read()'
)


@contextlib.contextmanager
def _started(*command):
  process = subprocess.Popen(
    [sys.executable, '-c', *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
  )
  try:
    yield process, process.stdout.readline().split()
  finally:
    process.communicate()  # It and its children leave at the end of its input.


def test_the_nodes_of_a_run_are_those_of_its_launcher_and_no_reader_of_its_files():
  mine, other = '/runs/mine/nodes', '/runs/mine-too/nodes'
  named = [f'{mine}/actor-0.pkl', f'{other}/actor-1.pkl', '/runs/mine/logs/actor-2.log']
  with (
    _started(STARTS, ','.join(named)) as (launcher, pids),
    _started(WAITS, f'{mine}/actor-3.pkl'),
  ):
    nodes = own.nodes(psutil.Process(launcher.pid), '/runs/mine')
    assert {name: str(p.pid) for name, p in nodes.items()} == {'actor-0': pids[0]}
  assert own.nodes(psutil.Process(os.getpid()), '/runs/mine') == {}


def test_what_a_node_has_forked_is_no_node():
  forks = 'import os, sys\nif os.fork(): print(os.getpid(), flush=True)\nsys.stdin.read()'
  with _started(forks, '/runs/mine/nodes/actor-0.pkl') as (_, (pid,)):
    nodes = own.nodes(psutil.Process(os.getpid()), '/runs/mine')
    assert {name: str(p.pid) for name, p in nodes.items()} == {'actor-0': pid}


def test_groups_of_nodes():
  assert [own.group(n) for n in ('inference_learner-0', 'launcher')] == [
    'inference_learner',
    'launcher',
  ]


def test_kills_depend_on_the_seed_only_and_come_as_often_as_asked():
  nodes = ['monitor-0', 'actor-1', 'actor-0']
  first, again = (
    list(itertools.islice(schedule.kills(3, 300.0, names), 600)) for names in (nodes, sorted(nodes))
  )
  assert first == again
  assert first != list(itertools.islice(schedule.kills(4, 300.0, nodes), 600))
  times = [due.at for due in first]
  assert times == sorted(times) and times[-1] / 600 == pytest.approx(300, rel=0.15)
  assert {due.node for due in first} == set(nodes)


def test_samples_of_a_process_are_read_back(tmp_path):
  recorder = sampler.Recorder(str(tmp_path / 'processes.csv'))
  # Pytest's own process opens and closes files of its own meanwhile.
  with _started(HOLDS) as (process, _):
    holder = psutil.Process(process.pid)
    more = sampler.take(holder, 'actor-0', 2, 60.0, 30.0)
    recorder.add(more)
    print(file=process.stdin, flush=True)
    process.stdout.readline()
    less = sampler.take(holder, 'actor-0', 2, 90.0, 60.0)
    recorder.add(less)
  recorder.close()
  assert 50 < more.own_mib - less.own_mib < 80 and more.pss_mib >= more.own_mib
  assert more.descriptors == less.descriptors + 1 and more.threads >= 1
  assert 0 < more.cpu_seconds <= less.cpu_seconds
  with open(tmp_path / 'processes.csv', 'a') as f:
    f.write('120.0,actor-0')  # The drill was killed within a row.
  assert sampler.read(str(tmp_path / 'processes.csv')) == [more, less]


def test_a_process_that_has_ended_has_no_sample():
  with _started(WAITS) as (process, _):
    ended = psutil.Process(process.pid)
  assert sampler.take(ended, 'actor-0', 0, 1.0, 1.0) is None


def _incarnation(node, pid, began, seconds, level, per_hour, noise=0.5, per_hour_descriptors=0.0):
  rng = np.random.default_rng(pid)
  return [
    sampler.Sample(
      seconds=began + age,
      node=node,
      restart_count=0,
      pid=pid,
      age=age,
      own_mib=level + per_hour * age / 3600 + 80 * min(age / 500 - 1, 0) + rng.normal(0, noise),
      pss_mib=level,
      descriptors=20 + int(per_hour_descriptors * age / 3600),
      threads=3,
      cpu_seconds=age / 10,
    )
    for age in np.arange(0.0, seconds, 30.0)
  ]


def test_growth_at_the_start_of_an_incarnation_is_no_growth():
  (row,) = flatness.growths(
    _incarnation('actor-0', 1, 0, 3000, 300, 0) + _incarnation('actor-0', 2, 3000, 3000, 300, 0)
  )
  assert (row.group, row.incarnations, row.verdict) == ('actor', 2, flatness.FLAT)
  assert abs(row.within.per_hour) < 3 and row.level == pytest.approx(300, abs=1)
  assert row.descriptors == (20, 20) and row.cores == pytest.approx(0.1, rel=0.05)


def test_growth_within_incarnations_is_found_though_each_has_a_level_of_its_own():
  samples = _incarnation('actor-0', 1, 0, 3000, 350, 40) + _incarnation(
    'actor-1', 2, 0, 3000, 250, 40
  )
  (row,) = flatness.growths(samples)
  assert row.within.per_hour == pytest.approx(40, abs=4)
  assert row.verdict == 'memory within an incarnation GROWS'
  assert flatness.grows([row]) == ['actor']


def test_growth_between_incarnations_is_found_though_none_is_old():
  samples = [
    s for n in range(6) for s in _incarnation('monitor-0', n, n * 400, 390, 100 + n * 10, 0)
  ]
  (row,) = flatness.growths(samples)
  assert row.between.per_hour == pytest.approx(90, abs=5)
  assert row.verdict == 'memory between incarnations GROWS'


def test_descriptors_that_leak_are_found():
  (row,) = flatness.growths(_incarnation('replay-0', 1, 0, 7200, 200, 0, per_hour_descriptors=12))
  assert row.descriptors_within.per_hour == pytest.approx(12, abs=0.5)
  assert row.verdict == 'descriptors GROWS'


def test_a_short_run_says_nothing_of_growth():
  rows = flatness.growths(_incarnation('actor-0', 1, 0, 500, 300, 400))
  assert [row.verdict for row in rows] == [flatness.TOO_SHORT]
  assert flatness.grows(rows) == [] and '| actor | 1 | 0.13 |' in flatness.table(rows)


def test_only_ends_that_the_drill_did_not_bring_about_are_surprises():
  incarnations = Incarnations()
  assert incarnations.see({'actor-0': 1, 'actor-1': 2}, 0.0) == []
  incarnations.latest['actor-0'].killed = 5.0
  assert incarnations.see({'actor-1': 2}, 6.0) == []
  assert [each.node for each in incarnations.never_back(6.0)] == ['actor-0']
  surprises = incarnations.see({'actor-0': 3, 'actor-1': 4}, 8.0)
  assert surprises == [Incarnation('actor-1', 0, 2, 0.0)]
  assert incarnations.latest['actor-0'] == Incarnation('actor-0', 1, 3, 8.0)
  assert incarnations.never_back(9.0) == []


def _audited(run_dir, produced, trained, batch_size=2):
  config = {'num_actors': 1, 'envs_per_actor': 1, 'queue_size': 2, 'batch_size': batch_size}
  (run_dir / 'config.json').write_text(json.dumps({'config': config}))
  audit.Audit(str(run_dir), audit.PRODUCED).record(np.array(produced))
  learner = audit.Audit(str(run_dir), audit.TRAINED)
  for step, start in enumerate(range(0, len(trained), batch_size)):
    learner.record(np.array(trained[start : start + batch_size]), step + 1)


def _ids(incarnation, *numbers):
  return [(incarnation << 32) + n for n in numbers]


def test_what_was_on_its_way_when_a_learner_died_is_accounted_for(tmp_path):
  # The last two of the first incarnation, and the first of the next, which replay sent to the dead one.
  produced = _ids(1, *range(40)) + _ids(2, *range(40))
  _audited(tmp_path, produced, _ids(1, *range(38)) + _ids(2, *range(1, 39)))
  account = unrolls.account(str(tmp_path), 0)
  assert (account['lost_with_the_learner'], account['unaccounted']) == (4, 0)
  assert (account['produced'], account['trained'], account['foreign']) == (80, 76, 0)


def test_a_gap_within_an_incarnation_is_unaccounted_for_unless_replay_was_killed(tmp_path):
  _audited(tmp_path, _ids(1, *range(40)), _ids(1, *range(20), *range(24, 40)))
  assert unrolls.account(str(tmp_path), 0)['unaccounted'] == 4
  assert unrolls.account(str(tmp_path), 1)['unaccounted'] == 0


def test_more_than_can_be_on_its_way_is_unaccounted_for(tmp_path):
  _audited(tmp_path, _ids(1, *range(40)), _ids(1, *range(20)))
  bound = unrolls.on_their_way(unrolls.config_of(str(tmp_path)))
  assert unrolls.account(str(tmp_path), 9)['unaccounted'] == 20 - bound > 0


def test_a_slow_environment_is_catch():
  environment = slow_catch.make('', 3, 0, step_seconds=0.0)
  environment.reset()
  assert environment.step(np.zeros(3, np.int32)).observation.shape == (3, 10, 5)
  with pytest.raises(ValueError, match='step_seconds'):
    slow_catch.make('', 3, 0, step_seconds=-1.0)
  assert user_file.is_spec('benchmarks/drills/slow_catch.py:make')


def test_the_shim_sets_the_clock_of_a_running_process(tmp_path):
  path = str(tmp_path / 'clock')
  code = (
    'import sys, time\n'
    'for _ in range(2):\n'
    '  print(time.time(), time.time_ns(), time.monotonic_ns(), flush=True); sys.stdin.readline()\n'
    '  end = time.monotonic() + 0.11\n'
    '  while time.monotonic() < end: pass'
  )
  environment = {**os.environ, **clock.environment(path)}
  with subprocess.Popen(
    [sys.executable, '-c', code],
    env=environment,
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
    text=True,
  ) as process:
    before = [float(n) for n in process.stdout.readline().split()]
    clock.set_clock(path, -3600)
    after = [float(n) for n in process.communicate('\n')[0].split()]
  passed = (after[2] - before[2]) / 1e9
  assert after[0] - before[0] == pytest.approx(passed - 3600, abs=1)
  assert (after[1] - before[1]) / 1e9 == pytest.approx(passed - 3600, abs=1)


def test_the_children_of_an_environment_are_known_by_their_mark(tmp_path):
  marks = [str(tmp_path / name) for name in ('mine', 'other')]
  for mark in marks:
    open(mark, 'w').close()
  child, other = (subprocess.Popen(family.child_command(mark)) for mark in marks)
  try:
    # A process has its command line a moment after Popen returns.
    wait_until(lambda: children.of_mark(marks[0]) == {child.pid: os.getpid()})
    child.kill()
    assert children.left_of(marks[0], {child.pid}) == set()
    wait_until(lambda: children.of_mark(marks[1]) == {other.pid: os.getpid()})
  finally:
    for process in (child, other):
      process.kill()
      process.wait()


def test_a_family_leaves_its_child_alone(tmp_path):
  mark = tmp_path / 'mark'
  mark.touch()
  environment = family.make('', 2, 0, step_seconds=0.0, mark=str(mark))
  environment.close()
  (pid,) = wait_until(lambda: children.of_mark(str(mark)))
  psutil.Process(pid).kill()
  environment._child.wait()
  family.make('', 2, 0).close()  # As launch.py tries it.


# Sends 1000 packets to itself; prints how many came.
PACKETS = (
  'import socket\n'
  'a, b = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))\n'
  'a.bind(("127.0.0.1", 0)); a.setblocking(False); came = 0\n'
  'for _ in range(1000):\n'
  '  b.sendto(b"x", a.getsockname())\n'
  '  try: came += len(a.recv(1))\n'
  '  except BlockingIOError: pass\n'
  'print(came)'
)


def test_packets_are_lost_without_netem():
  try:
    network.has_netem()
  except Refused as reason:
    pytest.skip(str(reason))
  setup = [['ip', 'link', 'set', 'lo', 'up'], *network.commands(0.2, netem=False)]
  script = ' && '.join(shlex.join(c) for c in [*setup, [sys.executable, '-c', PACKETS]])
  came = subprocess.run(['unshare', '--net', 'sh', '-c', script], capture_output=True, text=True)
  # What is not lost may still be on its way; of what there is, a fifth is lost.
  assert came.returncode == 0 and 0 < int(came.stdout) < 900, came.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
  'flags, sentence',
  [
    (['--drill=nap'], '--drill=nap: there is no such drill; they are kill, pause, '),
    (['--hours=-1'], 'hours'),
    (['further'], "'further' is not a flag; flags for launch.py are for --hours."),
    (['--hours=1', '--directory=/'], '--directory=/ exists already; name another.'),
  ],
)
def test_flags_that_make_no_sense_are_rejected(flags, sentence):
  refused = smoke.command('chaos', *flags)
  assert refused.returncode and sentence in refused.stderr


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_a_short_night(tmp_path):
  flags = ('--hours=0.03', '--pause=30', f'--directory={tmp_path}/night')
  night = smoke.command('chaos', *flags, deadline=840)
  assert night.returncode == 0, night.stdout + night.stderr
  assert (tmp_path / 'night' / 'report.md').read_text() in night.stdout
  samples = sampler.read(str(tmp_path / 'night' / 'processes.csv'))
  assert {'launcher', 'actor-0', 'replay-0', 'monitor-0'} <= {s.node for s in samples}
  assert len((tmp_path / 'night' / 'kills.csv').read_text().splitlines()) > 1


@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.parametrize('drill', ['suspend', 'children', 'replicas'])
def test_a_short_drill(drill):
  done = smoke.command('chaos', f'--drill={drill}', deadline=840)
  assert done.returncode == 0, done.stdout + done.stderr
