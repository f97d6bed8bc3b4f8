"""What a machine needs for replay."""

from nodes.replay_server import interpreter
from tests.programs_under_test import run_main


def test_without_reverbs_environment_a_program_with_replay_is_refused(monkeypatch, capsys):
  monkeypatch.setattr(interpreter, 'PYTHON', '/nothing/bin/python')
  assert run_main('--dry_run') == 2
  assert capsys.readouterr().err == (
    'error: /nothing/bin/python does not exist: Reverb needs an environment of its own, which `make` '
    'installs.\n'
  )
  assert run_main('--dry_run', '--program=evolution', '--env=gymnax:CartPole-v1') == 0
