"""The comparison with peers: what it computes, what it refuses, and that nothing of a run is left."""

import math
import subprocess
import sys

import psutil
import pytest

from benchmarks.peers import differences, measuring, reports, settings, systems, tree, virtual
from benchmarks.peers.reports import Report
from tests.benchmarks import smoke
from tests.waiting import wait_until

DRIVER = """
import json, subprocess, sys, time
settings = json.loads(sys.argv[1])
subprocess.Popen(['sleep', '1000'], start_new_session=True)
steps = 0
while True:
  steps += 10 * settings['num_actors']
  line = {'seconds': time.time() - settings['started'], 'steps': steps, 'learned': steps - 5}
  print(json.dumps(line | {'episode_return': None if steps < 100 else float(steps)}), flush=True)
  time.sleep(0.02)
"""


def test_lines_that_are_no_reports_are_passed_over():
  lines = [
    'INFO starting\n',
    '{"seconds": 1.5, "steps": 20, "learned": 10, "episode_return": null}\n',
    '{"loss": 3}\n',
    '{"seconds": 2.5, "steps": 40, "learned": 30, "episode_return": 9.0}\n',
    '{"seconds": 3.5, "ste',
  ]
  first, last = reports.parse(lines)
  assert first[:3] == (1.5, 20, 10) and math.isnan(first.episode_return)
  assert last == Report(2.5, 40, 30, 9.0)


def test_a_return_is_a_mean_over_the_last_hundred_episodes():
  intervals = [(0, math.nan), (50, 10.0), (0, math.nan), (60, 20.0), (100, 30.0)]
  means = reports.recent_returns(intervals)
  assert math.isnan(means[0])
  assert means[1:] == pytest.approx([10, 10, (500 + 1200) / 110, 30])


def test_a_rate_is_taken_between_the_first_and_the_last_report():
  window = [Report(10.0, 100, 50, 0.0), Report(11.0, 9999, 0, 0.0), Report(14.0, 300, 450, 0.0)]
  assert reports.rate(window, 'steps') == 50
  assert reports.rate(window, 'learned') == 100
  assert reports.rate(window[:1], 'steps') is None


def test_the_threshold_is_reached_when_it_is_first_reported():
  told = [Report(1.0, 1, 1, math.nan), Report(2.0, 2, 2, 400.0), Report(3.0, 3, 3, 500.0)]
  assert reports.seconds_to(told, 400.0) == 2.0
  assert reports.seconds_to(told, 501.0) is None and reports.seconds_to(told, None) is None
  assert reports.first_steps([Report(0.5, 0, 0, math.nan), *told]) == 1.0


def test_a_spread_says_of_how_many_runs_it_is():
  runs = [{'x': 3000.0}, {'x': None}, {'x': 1000.0}, {'x': 1500.0}]
  spread = reports.spread(runs, 'x')
  assert spread == {'median': 1500, 'least': 1000, 'greatest': 3000, 'runs': 3}
  assert reports.shown(spread, 4) == '1,500 (1,000 to 3,000), 3 of 4'
  assert reports.shown(spread, 3) == '1,500 (1,000 to 3,000)'
  assert reports.spread(runs[1:2], 'x') is None and reports.shown(None, 1) == '-'


def test_settings_are_those_of_our_program():
  made = settings.make({'env': 'atari:Pong', 'batch_size': 8, 'queue_size': 64})
  assert (made.torso, made.batch_size, made.frame_stack, made.max_abs_reward) == ('nature', 8, 4, 1)
  assert made.hidden_size == 512
  assert made.game['sticky_actions'] == 0.25 and made.action_repeat == 4 and made.threshold is None
  assert settings.make({}).torso == 'mlp' and settings.make({}).threshold == 400


@pytest.mark.parametrize(
  'given, flag',
  [
    ({'env': 'catch'}, '--env=catch'),
    ({'core': 'lstm'}, '--core'),
    ({'env': 'atari:Pong', 'torso': 'mlp'}, '--torso=mlp'),
    ({'torso': 'impala'}, '--torso=impala'),
    ({'env': 'atari:Pong', 'max_abs_reward': 0.0}, '--max_abs_reward=0'),
    ({'batch_size': 0}, '--batch_size is 0'),
  ],
)
def test_settings_that_peers_do_not_have_are_rejected(given, flag):
  with pytest.raises(ValueError, match=f'^{flag}'):
    settings.make(given)


@pytest.mark.slow
@pytest.mark.parametrize(
  'flags, said',
  [
    (['--systems=impala,acme'], '--systems=acme'),
    (['--scripts=cleanrl=nowhere'], '--scripts=cleanrl=nowhere'),
    (['--env=atari:Pong', '--until_return'], '--until_return'),
    (['--env=atari:Pong', '--scripts=cleanba=README.md', '--batch_size=24'], '--batch_size=24'),
    (['--wheels=nowhere'], '--wheels=nowhere'),
  ],
)
def test_flags_that_do_not_fit_end_it_with_a_sentence(flags, said):
  process = smoke.command('peers', *flags)
  assert process.returncode == 2 and process.stdout == ''
  (line,) = process.stderr.splitlines()
  assert line.startswith(f'error: {said}')


def test_every_peer_pins_what_it_shows_and_has_a_driver():
  for name, peer in systems.PEERS.items():
    assert set(peer.packages) <= set(virtual.pins(virtual.requirements(name).read_text()))
    assert (systems._DRIVERS / peer.driver).is_file()
    if peer.side_by_side:
      env = 'cartpole' if peer.torsos[0] == 'mlp' else 'atari:Pong'
      assert differences.lines([name], settings.make({'env': env}))
    assert not peer.built or (virtual.BUILDS / name).is_dir()


@pytest.fixture
def uv(tmp_path, monkeypatch):
  """Environments are made in `tmp_path` by a uv that only records what it is asked for."""
  calls = []

  def run(command, **given):
    calls.append((command[1:], given))
    return subprocess.CompletedProcess(command, 0, '', '')

  monkeypatch.setattr(subprocess, 'run', run)
  monkeypatch.setattr(virtual, 'DIRECTORY', tmp_path)
  monkeypatch.setattr(virtual, 'LISTS', tmp_path)
  (tmp_path / 'peer.txt').write_text('numpy==1.26.4\npeer==3.0.0\ntorch==2.13.0\n')
  (tmp_path / 'peer' / '.venv').mkdir(parents=True)
  return calls


def test_a_package_that_is_built_here_is_built_with_the_others_installed(uv):
  virtual.install('peer', '3.11', '/wheels', built='peer')
  (made, _), (others, given), (build, variables) = uv
  assert made[0] == 'venv' and given['input'] == 'numpy==1.26.4\ntorch==2.13.0\n'
  assert others[-2:] == ['--requirement', '-'] and '/wheels' in others
  assert build[-2:] == ['--no-build-isolation', 'peer==3.0.0'] and '--no-deps' in build
  assert variables['env']['PYTHONPATH'] == str(virtual.BUILDS / 'peer')


def test_an_environment_is_made_once_for_a_list(uv, tmp_path):
  virtual.install('peer', '3.11', '')
  assert len(uv) == 2 and 'peer==3.0.0' in uv[1][1]['input']
  virtual.install('peer', '3.11', '')
  assert len(uv) == 2
  (tmp_path / 'peer.txt').write_text('numpy==2.0.0\n')
  virtual.install('peer', '3.11', '')
  assert len(uv) == 4


@pytest.mark.slow
def test_a_driver_is_followed_and_everything_that_it_has_started_is_killed(tmp_path, monkeypatch):
  driver = tmp_path / 'driver.py'
  driver.write_text(DRIVER)
  monkeypatch.setitem(systems.PEERS, 'rllib', systems.Peer(str(driver), '3.10', ()))
  monkeypatch.setattr(virtual, 'python', lambda peer: sys.executable)
  plan = measuring.Plan(warm_up=0.1, seconds=0.5, threshold=60.0, until_return=False)
  made = settings.make({'num_actors': 3})
  with (
    tree.killed_at_the_end() as processes,
    systems.start('rllib', made, {}, '', processes) as run,
  ):
    measured = measuring.follow(run, processes, plan, action_repeat=4)
    left = processes.processes()
  assert measured['steps_per_second'] > 0 and measured['learned_steps_per_second'] > 0
  assert measured['frames_per_second'] == 4 * measured['steps_per_second']
  assert measured['seconds_to_return'] >= measured['seconds_to_first_steps'] > 0
  assert measured['peak_memory'] > 2**20 and measured['processes'] == 2
  busy, rate = measured['cores_busy'], measured['steps_per_second']
  assert measured['cpu_us_per_step'] == pytest.approx(1e6 * busy / rate)
  assert left and not any(p.is_running() and p.status() != psutil.STATUS_ZOMBIE for p in left)


def test_a_driver_that_ends_is_reported_with_its_last_output(tmp_path, monkeypatch):
  driver = tmp_path / 'driver.py'
  driver.write_text('raise ValueError("no such game")')
  monkeypatch.setitem(systems.PEERS, 'rllib', systems.Peer(str(driver), '3.10', ()))
  monkeypatch.setattr(virtual, 'python', lambda peer: sys.executable)
  plan = measuring.Plan(warm_up=0.0, seconds=1.0, threshold=None, until_return=False)
  with (
    pytest.raises(AssertionError, match=r'exit code 1(.|\n)*no such game'),
    tree.killed_at_the_end() as processes,
    systems.start('rllib', settings.make({}), {}, '', processes) as run,
  ):
    measuring.follow(run, processes, plan, action_repeat=1)


def test_processes_of_others_are_no_part_of_a_tree():
  with tree.killed_at_the_end() as mine, tree.killed_at_the_end() as other:
    process = subprocess.Popen(['sleep', '1000'], env=mine.variables)
    wait_until(mine.processes)
    assert [p.pid for p in mine.processes()] == [process.pid] and not other.processes()
    mine.kill()
    process.wait(60)
    assert not mine.processes()


@pytest.mark.nightly
def test_one_of_our_programs_alone(tmp_path):
  lines, record = smoke.run(
    'peers',
    tmp_path,
    'peers-cartpole',
    *('--systems=impala', '--repeats=1', '--seconds=1', '--warm_up=0'),
    *('--num_actors=1', '--envs_per_actor=8', '--batch_size=4'),
  )
  assert any(line.startswith('impala: python') for line in lines)
  (run,) = record['runs']['impala']
  assert run['steps_per_second'] > 0 and run['peak_memory'] > 2**20
  assert record['medians']['impala']['steps_per_second']['runs'] == 1
