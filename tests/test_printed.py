"""What launch.py prints in place of launching: the graph, the presets and the options."""

import contextlib
import os
import re
import signal

import pytest

from tests.programs_under_test import launch, run_main


def test_dry_run_prints_the_graph_and_starts_nothing(tmp_path, capsys):
  picture = tmp_path / 'graph.svg'
  flags = ('--num_actors=7', f'--run_dir={tmp_path / "run"}', f'--graph={picture}')
  assert run_main('--dry_run', *flags) == 0
  printed = capsys.readouterr().out
  assert re.search(r'actor +7 x PyClassNode\(Actor\) +on a CPU worker', printed)
  assert re.search(r'actor +-> inference_learner +7', printed)
  assert re.search(r'inference_learner +-> replay +1', printed)
  assert 'preset: default for catch: --num_steps=300000\n' in printed
  assert re.search(r'learning: about \d+ updates, learning starts after 4,704 actor_steps', printed)
  assert not (tmp_path / 'run').exists()
  assert '7 x Actor' in picture.read_text()


def test_dry_run_prints_relabellers_between_replay_and_the_learner(tmp_path, capsys):
  flags = ('--program=muzero', '--reanalyse_nodes=2', '--reanalyse_share=0.5')
  assert run_main('--dry_run', *flags, f'--run_dir={tmp_path / "run"}') == 0
  printed = capsys.readouterr().out
  assert re.search(r'relabeller +2 x PyClassNode\(Relabeller\) +on a CPU worker', printed)
  for server in ('inference_learner', 'replay', 'monitor'):
    assert re.search(rf'relabeller +-> {server} +2', printed)
  assert run_main('--dry_run', *flags, '--inference_nodes=1', f'--run_dir={tmp_path / "run"}') == 0
  assert re.search(r'relabeller +-> learner +2', capsys.readouterr().out)


def test_dry_run_prints_peers_that_call_each_other_in_a_cycle(tmp_path, capsys):
  picture = tmp_path / 'graph.svg'
  flags = ('--program=gala', '--num_peers=3', f'--graph={picture}', f'--run_dir={tmp_path / "run"}')
  assert run_main('--dry_run', *flags) == 0
  printed = capsys.readouterr().out
  assert re.search(r'peer +3 x DataCourierNode\(Anakin\) +on a CPU worker, restarts: 20', printed)
  assert re.search(r'peer +-> peer +3', printed) and re.search(r'evaluator +-> peer +1', printed)
  assert (
    'learning: about 6,250 updates of each learner, learning starts after 240 actor_steps'
    in printed
  )
  assert '3 x Anakin' in picture.read_text()


def test_presets_are_listed_beside_the_defaults_that_they_replace(capsys):
  assert run_main('--presets', '--program=r2d2', '--env=catch', '--num_steps=1000000') == 0
  printed = capsys.readouterr().out
  assert re.search(r'^program r2d2, preset default, catch$', printed, re.MULTILINE)
  assert re.search(r'^  core_size +64 +512$', printed, re.MULTILINE)
  assert re.search(r'^  num_steps +1000000 +300000 +your flag$', printed, re.MULTILINE)
  assert re.search(
    r'^  target_update_period +100 +2500 +updates / 50, at most 100$', printed, re.MULTILINE
  )
  assert '\n  about 12,355 updates, 123 target copies, learning starts after 10,816' in printed
  assert 'preset none, catch\n  sets nothing' in printed


def test_every_preset_of_every_program_is_listed_in_100_columns(capsys):
  assert run_main('--presets') == 0
  lines = capsys.readouterr().out.splitlines()
  assert max(map(len, lines)) <= 100
  for preset in (
    'program anakin, agent vtrace, preset default, gymnax:Pendulum-v1',
    'program impala, agent vtrace, preset published, atari',
    'program impala, agent ppo, preset default, atari',
    'program r2d2, preset default, every other environment',
    'program r2d2, preset published, atari',
    'program sebulba, agent vtrace, preset none, every environment',
  ):
    assert preset in lines


def test_environment_options_of_a_preset_that_stay_are_printed_with_yours(tmp_path, capsys):
  flags = ('--program=sebulba', '--agent=ppo', '--env=atari:Pong', '--env_options=sticky_actions=0')
  assert run_main('--dry_run', *flags, f'--run_dir={tmp_path / "run"}') == 0
  options = 'full_action_space=false,screen=42,sticky_actions=0'
  assert f'--env_options={options}' in capsys.readouterr().out.split('\nlearning:')[0]
  assert run_main('--presets', '--preset=default', *flags) == 0
  printed = capsys.readouterr().out
  assert re.search(r"^  env_options +full\S+ +'' +with your flag$", printed, re.MULTILINE)


def test_runs_that_learn_little_get_one_warning(capsys):
  assert run_main('--dry_run', '--optimizer=rmsprop', '--num_steps=100000') == 0
  warnings = [line for line in capsys.readouterr().err.splitlines() if line.startswith('warning')]
  assert [w.split('=')[0] for w in warnings] == ['warning: --num_steps', 'warning: --optimizer']


def test_dry_run_shows_the_placement_as_the_file_changes_it(tmp_path, capsys):
  path = tmp_path / 'placement.yaml'
  path.write_text('inference_learner: {accelerator: tpu, num_devices: 4}\nactor: {cpus: 2}\n')
  assert run_main('--dry_run', '--launcher=ray', f'--placement={path}') == 0
  printed = capsys.readouterr().out
  assert re.search(r'inference_learner .* on a TPU host, devices: 4 of them', printed)
  assert re.search(r'actor .* on a CPU worker, cpus: 2', printed)
  assert re.search(r'monitor .* on a CPU worker, with the launcher', printed)


def _printed_to(file: int | str, *flags: str) -> int:
  """Runs launch.py's main function with a file as its stdout; returns the exit code."""
  code = -1
  stdout = open(file, 'w', buffering=1)  # noqa: SIM115  closing it fails too.
  with contextlib.suppress(OSError), stdout, contextlib.redirect_stdout(stdout):
    code = run_main(*flags)
  return code


def test_a_listing_ends_quietly_when_its_reader_has_left(capsys):
  read, write = os.pipe()
  os.close(read)
  assert _printed_to(write, '--presets', '--program=gala') == 128 + signal.SIGPIPE
  assert capsys.readouterr().err == ''


def test_a_listing_that_cannot_be_written_is_an_error(capsys):
  assert _printed_to('/dev/full', '--presets', '--program=gala') == 2
  message = 'error: standard output cannot be written: No space left on device.\n'
  assert capsys.readouterr().err == message


@pytest.mark.slow
def test_help_names_every_option_with_its_default():
  text = launch('--help').stdout
  assert re.search(r'--batch_size=16 +unrolls that each replica adds to a learner batch', text)
  assert re.search(r'--rho_bar=1.0 ', text)
  assert '--replay_size' not in text
  assert re.search(r'--batch_size=64 ', launch('--program=r2d2', '--help').stdout)
