"""--program=anakin --num_replicas=2 as a user runs it: a loop over two processes, with a deadline."""

import json
import pathlib
import re
import signal

import jax
import numpy as np
import psutil
import pytest
from flax import serialization

from benchmarks.running import processes
from rundir import checkpoints, curves, saved_params
from tests.launchers import replicas
from tests.programs_under_test import DONE, ENDLESS, launch, log_text

ANAKIN = (
  '--program=anakin',
  '--num_envs=16',
  '--unroll_length=5',
  '--updates_per_call=2',
  '--mlp_sizes=16',
  '--adam_eps=1e-3',  # With less, rounding errors of tiny gradients become whole steps.
)


def _final_params(run_dir):
  return serialization.msgpack_restore(saved_params.read(str(run_dir), 'final').content)


def test_a_run_of_two_hosts_ends_and_goes_on_on_one_as_if_it_had_always_been_there(train, tmp_path):
  moved, alone = tmp_path / 'moved', tmp_path / 'alone'
  process = train(*ANAKIN, '--num_replicas=2', '--num_steps=800', f'--run_dir={moved}')
  assert process.returncode == 0, process.stderr
  assert int(DONE.fullmatch(process.stdout.splitlines()[-1])[2]) >= 800
  logs = {path.stem for path in (moved / 'logs').glob('*.log')}
  assert logs == {'anakin-0', 'anakin-1', 'evaluator-0', 'monitor-0'}
  assert 'Traceback' not in log_text(moved) and processes(str(moved)) == []
  assert list(json.loads((moved / 'summary.json').read_text())['learners']) == ['anakin/0']

  shorter = '--num_steps=1600', '--eval_envs=0'
  for flags in (f'--resume={moved}', '--num_replicas=1'), (*ANAKIN, f'--run_dir={alone}'):
    process = train(*flags, *shorter)
    assert process.returncode == 0, process.stderr
  counts = [checkpoints.newest(checkpoints.directory(str(d))).counts for d in (moved, alone)]
  assert counts[0] == counts[1]
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5),
    *map(_final_params, (moved, alone)),
  )


def test_ctrl_c_ends_all_after_the_same_call_with_a_checkpoint_that_all_resume_from(
  start_program, train
):
  program = start_program('--num_replicas=2', '--eval_envs=0', ENDLESS, small=ANAKIN)
  program.wait_until(
    lambda: curves.read(program.run_dir, 'anakin/0', 'learner_steps'), 'the loop runs'
  )
  nodes = program.nodes()
  program.launcher.send_signal(signal.SIGINT)
  code, output, errors = program.end()
  assert code == 130 and 'after SIGTERM' not in errors
  assert 'Traceback' not in output + errors + log_text(pathlib.Path(program.run_dir))
  assert psutil.wait_procs(nodes.values(), timeout=0)[1] == []
  saved = checkpoints.newest(checkpoints.directory(program.run_dir)).counts
  assert saved['learner_steps'] > 0

  steps = saved['actor_steps'] + 500
  resumed = train(f'--resume={program.run_dir}', f'--num_steps={steps}')
  assert resumed.returncode == 0, resumed.stderr
  assert steps <= int(DONE.fullmatch(resumed.stdout.splitlines()[-1])[2]) < steps + 500


@pytest.mark.nightly  # Of Sebulba's replicas, tests/test_replicas.py shows it.
@pytest.mark.parametrize('victim', ['anakin-0', 'anakin-1'])
def test_when_one_is_killed_all_continue_from_the_newest_checkpoint(start_program, victim):
  program = start_program(
    '--num_replicas=2', '--eval_envs=0', '--checkpoint_period=0.5', ENDLESS, small=ANAKIN
  )
  saved = program.wait_until(program.checkpoint_counts, 'a checkpoint')
  program.nodes()[victim].kill()
  log = pathlib.Path(program.run_dir, 'logs', 'anakin-0.log')
  resumed = program.wait_until(
    lambda: re.search("resuming from .*'learner_steps': ([0-9]+)", log.read_text()), 'a new job'
  )
  assert int(resumed[1]) >= saved['learner_steps'] > 0
  program.wait_until(
    lambda: program.checkpoint_counts()['learner_steps'] > int(resumed[1]), 'it learns'
  )
  program.launcher.send_signal(signal.SIGINT)
  code, _, errors = program.end()
  assert code == 130, errors


@pytest.mark.nightly  # Ctrl-C alone is tested above.
def test_ctrl_c_ends_a_replica_that_waits_for_another(start_program):
  program = start_program('--num_replicas=2', '--eval_envs=0', ENDLESS, small=ANAKIN)
  program.wait_until(
    lambda: curves.read(program.run_dir, 'anakin/0', 'learner_steps'), 'the loop runs'
  )
  replicas.stop_while_the_second_is_suspended(program, 'anakin')


@pytest.mark.slow
def test_the_preview_shows_the_replicas_and_their_hosts():
  flags = '--program=anakin', '--num_replicas=3', '--num_envs=96', '--num_devices=4'
  process = launch('--dry_run', *flags, '--accelerator=tpu', '--launcher=ray')
  assert process.returncode == 0, process.stderr
  assert re.search(
    r'anakin +3 x .*TPU host, devices: 4 of them, .*together one job', process.stdout
  )
  assert re.search(r'anakin +-> anakin +3', process.stdout)
