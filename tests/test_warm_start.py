"""--init_from: a run that begins with the parameters of another."""

import json
import shutil

import jax
import numpy as np
import pytest
from flax import serialization

from agents import shapes
from agents.options import flatten
from environments import registry as environments
from nodes.learning import serialisation
from programs import registry, runs
from programs.options import configs
from rundir import final_params, run_directory
from tests.programs_under_test import DONE, SMALL, run_main


def _ended_run(path, program='sebulba', **given):
  """Makes the directory of a run with final parameters, all of them 1."""
  module = registry.load(program)
  config = configs.make_config(module, given)
  run_directory.write_record(str(path), program, given, flatten(config))
  spec = environments.make_spec(config.run.env)
  agent = module.make_agent(config)(spec.observations, spec.actions)
  params = jax.tree.map(lambda x: np.ones(x.shape, x.dtype), shapes.params(agent))
  final_params.save(str(path), serialisation.serialise(params))


@pytest.mark.slow
@pytest.mark.parametrize(
  'given, flags, words',
  [
    ({}, ['--program=r2d2'], ['parameters of vtrace, but this run trains r2d2; name a run that']),
    ({}, ['--agent=ppo'], ['parameters of vtrace, but this run trains ppo']),
    ({'agent': 'ppo'}, [], ['parameters of ppo, but this run trains vtrace']),
    (
      {'mlp_sizes': ['7'], 'core': 'lstm'},
      [],
      [
        'float32[',
        ' for params/',
        ', but this agent expects ',
        'that run has --core=lstm --mlp_sizes=7.',
      ],
    ),
    ({'env': 'cartpole'}, [], ['but this agent expects', 'that run has --env=cartpole']),
    ({}, ['--normalize_observations'], ['nothing for observation_statistics/count']),
    (None, [], ['is not the directory of a run']),
  ],
)
def test_parameters_that_do_not_fit_are_rejected_in_one_sentence(
  tmp_path, given, flags, words, capsys
):
  if given is not None:
    _ended_run(tmp_path, **given)
  assert run_main(f'--init_from={tmp_path}', f'--run_dir={tmp_path / "new"}', *flags) == 2
  captured = capsys.readouterr()
  assert captured.err.startswith('error: --init_from') and captured.err.count('\n') == 1
  for word in (str(tmp_path), *words):
    assert word in captured.err
  assert not (tmp_path / 'new').exists()


def test_a_run_without_parameters_is_rejected(tmp_path, capsys):
  _ended_run(tmp_path)
  shutil.rmtree(tmp_path / 'params')
  assert run_main(f'--init_from={tmp_path}') == 2
  assert f'error: --init_from={tmp_path} has no parameters yet' in capsys.readouterr().err
  assert run_main(f'--init_from={tmp_path}', '--launcher=k8s', '--image=x', '--output=y') == 2
  assert f'error: --init_from={tmp_path} is on this machine' in capsys.readouterr().err


def test_another_program_with_the_same_agent_begins_with_them(
  finished_run, train, tmp_path, monkeypatch
):
  """With hardly a learning rate, the parameters stay what they were in the beginning."""
  run_dir = tmp_path / 'run'
  process = train(
    *SMALL,
    *('--program=impala', '--lp_launch_type=local_mt', '--learning_rate=1e-30'),
    *(f'--init_from={finished_run}', f'--run_dir={run_dir}'),
  )
  assert process.returncode == 0, process.stderr
  assert int(DONE.fullmatch(process.stdout.splitlines()[-1]).group(4)) >= 15
  before, after = (
    serialization.msgpack_restore((path / 'params' / 'final.msgpack').read_bytes())
    for path in (finished_run, run_dir)
  )
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-9), before, after)
  record = json.loads((run_dir / 'config.json').read_text())
  assert record['config']['init_from'] == str(finished_run)
  # Resumed, it is a run like any other: the other one may be gone.
  (run_dir / 'summary.json').unlink()
  monkeypatch.setattr(runs, 'recorded_run', None)
  record['config']['init_from'] = record['given']['init_from'] = str(tmp_path / 'gone')
  (run_dir / 'config.json').write_text(json.dumps(record))
  assert run_main(f'--resume={run_dir}', '--dry_run') == 0


def test_every_program_has_the_option():
  for name in registry.PROGRAMS:
    assert flatten(registry.load(name).Config())['init_from'] == ''
