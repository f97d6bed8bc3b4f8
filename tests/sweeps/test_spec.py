"""Files of sweeps: what they describe, and what is refused before anything is launched."""

import dataclasses
import json

import launchpad as lp
import pytest
from absl import flags

from agents.options import flatten, replace
from launchers.engine import Job
from programs import registry
from programs.options import configs
from rundir import run_directory
from sweeps import metrics, planning, prepare, spec


@dataclasses.dataclass(frozen=True)
class Options:
  seed: int = 1


def test_a_file_describes_every_run(parse):
  sweep = parse(metric='actor_steps', goal='minimize', time_limit=60, jobs=3)
  assert sweep.flags == {'program': 'anakin', 'num_steps': '1000'}
  assert list(sweep.seeds) == [1, 2] and sweep.trials == [
    {'learning_rate': '0.1'},
    {'learning_rate': '0.2'},
  ]
  assert sweep.command({'learning_rate': '0.1'}, 2) == [
    *('--program=anakin', '--num_steps=1000', '--learning_rate=0.1', '--seed=2')
  ]
  assert (sweep.metric.sign, sweep.time_limit, sweep.jobs) == (-1, 60.0, 3)
  assert prepare.checked(sweep) == (3, 'as mine.yaml says')


@pytest.mark.parametrize(
  'changes, said',
  [
    ({'space': None}, 'mine.yaml: space is empty'),
    ({'flags': {'num_stepz': 3}}, "flags: there is no option 'num_stepz'; did you mean num_steps?"),
    ({'flags': {'num_steps': 'many'}}, "flags: num_steps cannot be 'many'"),
    ({'flags': ['num_steps']}, 'flags is '),
    ({'flags': {'seed': 3}}, 'flags: seed is for a single run; list its values in "seeds"'),
    ({'space': {'seed': [1, 2]}}, 'space: seed is for a single run'),
    ({'flags': {'run_dir': 'x'}}, 'flags: run_dir is for a single run; leave it out'),
    ({'flags': {'learning_rate': 1}}, 'learning_rate is in both flags and space'),
    ({'seeds': 0}, 'seeds must be a number from 1'),
    ({'seeds': [1, 1]}, 'list of different whole numbers; it is [1, 1]'),
    ({'seeds': ['1']}, 'seeds must be a number'),
    ({'search': 'gird'}, "search: there is no 'gird'; did you mean grid?"),
    ({'search': 'random'}, 'trials is missing'),
    ({'search': 'random', 'trials': 0}, 'trials is 0; set it to a whole number, at least 1'),
    ({'trials': 5}, 'trials is not for a grid'),
    ({'space': {'learning_rate': {'range': [0, 1]}}}, 'add "search: random"'),
    ({'metric': 'evaluator_retur'}, "no run has 'evaluator_retur'; did you mean evaluator_return?"),
    ({'metric': 'elo'}, "no run has 'elo'; there are: evaluator_return, "),
    ({'metric': 'inference_learner/'}, "metric is 'inference_learner/'; set it to GROUP/COLUMN"),
    ({'metric': '/loss'}, "metric is '/loss'; set it to GROUP/COLUMN"),
    ({'metric': 'evaluator/x', 'metric_of': 'median'}, "metric_of is 'median'; set it to last"),
    ({'metric_of': 'mean'}, 'metric_of is for a column of a log'),
    ({'goal': 'maximise'}, "goal is 'maximise'; set it to maximize or minimize"),
    ({'time_limit': 0}, 'time_limit is 0; set it to seconds'),
    ({'jobs': -1}, 'jobs is -1; set it to a whole number'),
    ({'title': 3}, 'title is 3; set it to a text'),
  ],
)
def test_a_wrong_entry_is_rejected_in_one_sentence(parse, changes, said):
  with pytest.raises(ValueError) as error:
    parse(**changes)
  assert 'mine.yaml' in str(error.value) and said in str(error.value)
  assert '\n' not in str(error.value)


@pytest.mark.parametrize(
  'changes, said',
  [
    ({'space': {'learning_rate': [0.1, -1]}}, 'with --learning_rate=-1: '),
    ({'space': {'num_epochs': [2]}}, 'with --num_epochs=2: --num_epochs is not an option of'),
    ({'flags': {'program': 'anakin', 'env': 'katch'}}, 'catch'),
    (
      {'flags': {'launcher': 'slurm'}},
      '--launcher=slurm: a sweep runs its programs on this machine',
    ),
    ({'flags': {'eval_envs': 0}}, '--eval_envs=0 leaves no evaluator'),
    ({'metric': 'evaluatr/x'}, "sebulba has no group 'evaluatr'; did you mean evaluator?"),
    ({'seeds': [1, 2**32]}, '--seed is 4294967296'),
  ],
)
def test_a_run_that_would_fail_is_rejected_before_the_first_is_launched(parse, changes, said):
  sweep = parse(**({'flags': {}} | changes))
  with pytest.raises(ValueError) as error:
    prepare.checked(sweep)
  assert str(error.value).startswith('mine.yaml: ') and said in str(error.value)


def test_a_program_without_learning_has_no_evaluator_and_needs_a_seed(parse, monkeypatch):
  job = Job('mine.py:make', lp.Program('mine'), {}, {}, vars(Options()), False, 1.0)
  for name in ('evaluator_return', 'seconds'):
    with pytest.raises(ValueError, match=f'your own has no {name}; set it to a column of a log'):
      metrics.Metric(name).check_job(job, 'mine.yaml')
  monkeypatch.setattr(planning.config_flags, 'define', lambda *_: None)
  monkeypatch.setattr(planning.flags, 'FLAGS', flags.FlagValues())
  with pytest.raises(ValueError, match='a sweep sets --seed, which the program lacks'):
    planning.job(['--seed=1'])


def test_a_runs_config_json_and_flags_beside_it_are_the_flags_of_all_runs(parse, tmp_path):
  given = {'num_steps': 5000, 'mlp_sizes': ['8', '4'], 'learning_rate': 0.5, 'seed': 9}
  config = configs.make_config(registry.load('anakin'), given)
  config = replace(config, run_dir=str(tmp_path))
  given |= {'run_dir': str(tmp_path)}
  run_directory.write_record(str(tmp_path), 'anakin', given, flatten(config))
  sweep = parse(config=str(tmp_path / 'config.json'), flags={'num_steps': 7000})
  assert sweep.flags == {'program': 'anakin', 'num_steps': '7000', 'mlp_sizes': '8,4'}
  job = planning.job(sweep.command({'learning_rate': '0.1'}, 2))
  expected = {'num_steps': 7000, 'mlp_sizes': (8, 4), 'learning_rate': 0.1, 'seed': 2}
  assert job.config == {**job.config, **expected}


def test_a_file_may_name_your_own_program_and_agent(tmp_path, monkeypatch):
  defined = []
  monkeypatch.setattr(spec.config_flags, 'define', lambda *own, every_agent: defined.append(own))
  own = f'{spec.__file__}/../mine.py:make_program', f'{spec.__file__}/../mine.py:Mine'
  flags = f'flags: {{program: {own[0]}, agent: {own[1]}}}'
  (tmp_path / 'mine.yaml').write_text(f'{flags}\nspace: {{hottest: [1, 2]}}')
  assert spec.load(str(tmp_path / 'mine.yaml'))['space'] == {'hottest': [1, 2]}
  (tmp_path / 'base.json').write_text(json.dumps({'program': own[0], 'agent': own[1]}))
  (tmp_path / 'mine.yaml').write_text(f'config: {tmp_path}/base.json')
  spec.load(str(tmp_path / 'mine.yaml'))
  assert defined == [own, own]


@pytest.mark.parametrize(
  'text, said',
  [
    ('learning_rate: 1', "there is no entry 'learning_rate'; there are: config, "),
    ('spaces: {}', "there is no entry 'spaces'; did you mean space?"),
    ('- 1', 'must map names to values'),
    ('a: [', 'is neither YAML nor JSON'),
    (None, 'cannot be read'),
  ],
)
def test_a_file_that_is_no_sweep_is_rejected(tmp_path, text, said):
  path = tmp_path / 'mine.yaml'
  if text is not None:
    path.write_text(text)
  with pytest.raises(ValueError) as error:
    spec.load(str(path))
  assert str(error.value).startswith(str(path)) and said in str(error.value)


@pytest.mark.parametrize('text, seeds', [('3', [1, 2, 3]), ('1,2,7', [1, 2, 7]), ('0,4', [0, 4])])
def test_seeds_are_a_number_or_a_list(text, seeds):
  sweep = spec.seeds_alone(text, {'program': 'anakin'}, 'anakin', '--seeds')
  assert list(sweep.seeds) == seeds and sweep.command({}, 4) == ['--program=anakin', '--seed=4']


@pytest.mark.parametrize('text', ['0', 'x', '1,,2', '1,1', '-3', '1e3', '2000'])
def test_other_seeds_are_rejected(text):
  with pytest.raises(ValueError, match=f'--seeds={text} must be'):
    spec.seeds_alone(text, {}, '', '--seeds')


def test_as_many_programs_run_at_once_as_have_the_cores_that_their_nodes_ask_for(
  parse, monkeypatch
):
  sweep = parse(flags={}, space={'num_actors': [2, 10]})
  for cores, number in ((2, 1), (13, 1), (26, 2), (64, 4)):
    monkeypatch.setattr('os.sched_getaffinity', lambda pid, n=cores: range(n))
    # Learner, replay, evaluator and ten actors.
    assert prepare.checked(sweep) == (
      number,
      f'{cores} cores, and the nodes of each ask for up to 13',
    )
  sweep = parse(flags={'accelerator': 'gpu'}, space={'num_actors': [2]})
  assert prepare.checked(sweep) == (1, 'each uses the accelerator')
