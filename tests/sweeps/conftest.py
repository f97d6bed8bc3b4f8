"""The flags of launch.py, a file of a sweep, and a launch.py that takes no time."""

import pytest
import yaml

import launch  # noqa: F401  It defines flags.
from programs.options import flags as config_flags
from sweeps import commands, runner, spec

FILE = {
  'flags': {'program': 'anakin', 'num_steps': 1000},
  'space': {'learning_rate': ['0.1', '0.2']},
  'seeds': 2,
}
# Writes the files of a run whose return follows from its flags. 0.95 has no summary, 0.5 fails, and of
# 0.4 seed 2. 0.7 waits for SIGTERM, leaves a checkpoint, and ends when it is resumed.
QUICK = """
import json, os, signal, sys, time

flags = dict(word.removeprefix('--').partition('=')[::2] for word in sys.argv[1:])
resumed = 'resume' in flags
run_dir = flags.get('resume') or flags['run_dir']
os.makedirs(os.path.join(run_dir, 'logs'), exist_ok=True)
config = os.path.join(run_dir, 'config.json')
if resumed:
  with open(config) as f:
    record = json.load(f)
else:
  record = {'program': 'anakin', 'given': {}, 'config': flags, 'commands': [], 'versions': {}}
record['commands'].append(sys.argv)
with open(config, 'w') as f:
  json.dump(record, f)
rate, seed = float(record['config']['learning_rate']), int(record['config']['seed'])
if rate == 0.5 or (rate, seed) == (0.4, 2):
  print('ValueError: it has blown up')
  print('to resume: python launch.py --resume=x')
  sys.exit(1)
if rate == 0.7 and not resumed:
  signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
  try:
    print('waits', flush=True)
    time.sleep(1000)
  finally:
    os.makedirs(os.path.join(run_dir, 'checkpoints'), exist_ok=True)
    open(os.path.join(run_dir, 'checkpoints', '000000000005.checkpoint'), 'w').close()
value = round(1 - rate - seed / 100, 6)
with open(os.path.join(run_dir, 'logs', 'evaluator-0.csv'), 'w') as f:
  f.write('environment_frames,evaluator_return,evaluator_return_stderr\\n')
  f.write(f'100,0.0,0\\n1000,{value},0\\n')
if rate == 0.95:  # As a program of the user's own, without a monitor.
  with open(os.path.join(run_dir, 'end.json'), 'w') as f:
    json.dump({'exit_code': 0, 'seconds': 1.0, 'time': 0.0}, f)
  sys.exit()
with open(os.path.join(run_dir, 'summary.json'), 'w') as f:
  counts = dict.fromkeys(('actor_steps', 'environment_frames', 'learner_steps'), 1000)
  json.dump({'evaluator_return': value, 'seconds': 1.0, **counts}, f)
print('done')
"""


@pytest.fixture(autouse=True)
def flags_of_launch():
  """Defines the flags of all programs, as another test may have left those of one."""
  config_flags.define()


@pytest.fixture
def parse(tmp_path):
  """Returns a function from changes of `FILE` to its sweep; None removes an entry."""

  def parse(**changes):
    entries = {name: value for name, value in (FILE | changes).items() if value is not None}
    return spec.parse(yaml.safe_load(yaml.safe_dump(entries, sort_keys=False)), 'mine.yaml')

  return parse


@pytest.fixture
def quick_launch(tmp_path, monkeypatch):
  """Replaces launch.py in the runs of a sweep; returns the path of the other script."""
  script = tmp_path / 'quick.py'
  script.write_text(QUICK)
  monkeypatch.setattr(runner, '_LAUNCH', str(script))
  monkeypatch.setattr(runner, '_TICK_SECONDS', 0.01)
  assert commands.ROOT.joinpath('launch.py').exists()
  return script
