import dataclasses

import launchpad as lp
import pytest

from agents.options import make
from launchers import placement, placement_file
from launchers.graph import describe
from launchers.placement import Resources
from programs import sebulba
from tests.launchers import nodes


def test_a_cpu_worker_sees_no_accelerator():
  variables = placement.environment_variables(Resources())
  assert variables['JAX_PLATFORMS'] == 'cpu'
  assert variables['CUDA_VISIBLE_DEVICES'] == ''
  assert variables['TPU_VISIBLE_CHIPS'] == ''


def test_an_accelerator_host_sees_the_devices_it_was_given_and_keeps_their_memory_free():
  variables = placement.environment_variables(Resources(accelerator='gpu', devices=(1, 3)))
  assert variables['CUDA_VISIBLE_DEVICES'] == '1,3'
  assert variables['XLA_PYTHON_CLIENT_PREALLOCATE'] == 'false'
  assert variables['JAX_PLATFORMS'].startswith('cuda')
  variables = placement.environment_variables(Resources(accelerator='tpu', devices=(0,)))
  assert variables['TPU_VISIBLE_CHIPS'] == '0'
  assert 'CUDA_VISIBLE_DEVICES' in placement.environment_variables(Resources(accelerator='tpu'))
  assert 'TPU_VISIBLE_CHIPS' not in placement.environment_variables(Resources(accelerator='tpu'))


def test_own_variables_come_last():
  variables = placement.environment_variables(Resources(env={'OMP_NUM_THREADS': '7'}))
  assert variables['OMP_NUM_THREADS'] == '7'


def test_an_unknown_accelerator_is_rejected():
  with pytest.raises(ValueError, match="accelerator 'abacus'"):
    Resources(accelerator='abacus')


def test_edges_go_from_the_holder_of_a_handle_to_its_server():
  program = nodes.program((nodes.Caller, True, ''), (nodes.Crasher, False, ''))
  with program.group('many'):
    for _ in range(3):
      program.add_node(lp.PyClassNode(nodes.Crasher, ''))
  assert describe.edges(program) == {('node0', 'echo'): 1}
  text = describe.describe(program, {label: Resources() for label in program.groups})
  assert '3 x PyClassNode(Crasher)' in text


def _override(tmp_path, text):
  path = tmp_path / 'placement.yaml'
  path.write_text(text)
  default = {'learner': Resources(accelerator='gpu', devices=(0, 1)), 'actor': Resources(cpus=3)}
  return placement_file.override(default, str(path))


def test_a_file_changes_the_fields_that_it_names(tmp_path):
  where = _override(
    tmp_path,
    """
    learner: {accelerator: tpu, num_devices: 4, memory_gb: 1.5, env: {THREADS: 4}}
    actor:
      resources: {disk: 2}
      labels: {pool: a}
    """,
  )
  assert where == {
    'learner': Resources(
      accelerator='tpu', num_devices=4, devices=(), memory_gb=1.5, env={'THREADS': '4'}
    ),
    'actor': Resources(cpus=3, resources={'disk': 2}, labels={'pool': 'a'}),
  }


def test_variables_of_a_group_without_an_accelerator_are_not_those_of_one_with_it():
  resources = Resources(env={'A': '1'}, cpu_env={'A': '2', 'NPROC': '1'})
  variables = placement.environment_variables(resources)
  assert (variables['A'], variables['NPROC']) == ('1', '1')
  assert resources.describe() == 'CPU worker, A=1, NPROC=1'
  moved = dataclasses.replace(resources, accelerator='gpu')
  assert 'NPROC' not in placement.environment_variables(moved) and 'NPROC' not in moved.describe()


@pytest.mark.parametrize('options', [{'inference_nodes': 1}, {'inference_nodes': 2}])
def test_only_inference_on_cpus_has_one_xla_thread(options):
  for accelerator in ('cpu', 'gpu'):
    config = make(sebulba.Config, accelerator=accelerator, **options).resolve()
    variables = placement.environment_variables(sebulba.placement(config)['inference'])
    assert variables.get('NPROC') == ('1' if accelerator == 'cpu' else None)


@pytest.mark.parametrize(
  ('platforms', 'accelerator', 'warns'),
  [('cuda', None, True), ('cuda', 'gpu', False), ('cpu', None, False), ('', None, False)],
)
def test_a_shell_that_asks_for_devices_which_no_node_has_is_told(
  monkeypatch, platforms, accelerator, warns
):
  monkeypatch.setenv('JAX_PLATFORMS', platforms)
  groups = {'actor': Resources(), 'learner': Resources(accelerator=accelerator)}
  said = placement.shell_warnings(groups)
  assert [f'JAX_PLATFORMS={platforms} has no effect' in each for each in said] == [True] * warns


def test_the_users_choice_to_preallocate_is_kept(monkeypatch):
  monkeypatch.setenv('XLA_PYTHON_CLIENT_PREALLOCATE', 'true')
  variables = placement.environment_variables(Resources(accelerator='gpu'))
  assert variables['XLA_PYTHON_CLIENT_PREALLOCATE'] == 'true'


def test_a_file_may_be_json_and_take_an_accelerator_away(tmp_path):
  where = _override(
    tmp_path, '{"learner": {"accelerator": "cpu"}, "actor": {"with_launcher": true}}'
  )
  assert where == {'learner': Resources(), 'actor': Resources(cpus=3, with_launcher=True)}


@pytest.mark.parametrize(
  'text, words',
  [
    ('actors: {cpus: 1}', ["no group 'actors'", 'learner, actor']),
    ('actor: {cpu: 1}', ["group 'actor'", "no field 'cpu'", 'cpus']),
    ('actor: {cpus: many}', ['cpus must be a number', "'many'"]),
    ('actor: {cpus: true}', ['cpus must be a number', 'True']),
    ('actor: {cpus: -1}', ['cpus must be', '-1']),
    ('actor: {cpus: .nan}', ['cpus must be', 'nan']),
    ('actor: {num_devices: 2}', ['devices need an accelerator']),
    ('actor: {python: bin/python}', ["python 'bin/python' must be the absolute path"]),
    ('learner: {devices: [0], num_devices: 2}', ['num_devices 2']),
    ('learner: {accelerator: abacus}', ["'abacus'"]),
    ('learner: {devices: 3}', ['devices must be a list of whole numbers', '3']),
    ('actor: {env: {A: [1]}}', ['env must be a mapping from names to texts']),
    ('actor: {env: {-u: A}}', ["env '-u'", 'not an environment variable']),
    ('actor: {env: {A: "a\\0"}}', ["env 'A'", 'NUL']),
    ('actor: {labels: {pool: "a\\nb"}}', ["'a\\nb'", 'cannot be part of a line']),
    ('actor: 3', ["group 'actor' must map fields to values"]),
    ('- actor', ['must map groups to fields']),
    ('{', ['neither YAML nor JSON']),
    ('[' * 5000, ['is nested too deeply']),
    ('actor: {labels: {a: 2020-13-45}}', ['neither YAML nor JSON', 'month must be in 1..12']),
    ('learner: {devices: [1, 1]}', ['devices must be distinct numbers from 0 on, not [1, 1]']),
    ('learner: {devices: [-1]}', ['devices must be distinct numbers from 0 on']),
  ],
)
def test_a_bad_file_is_rejected_in_one_sentence_that_says_where(tmp_path, text, words):
  with pytest.raises(ValueError) as error:
    _override(tmp_path, text)
  message = str(error.value)
  assert message.startswith('--placement=') and 'placement.yaml' in message and '\n' not in message
  for word in words:
    assert word in message


def test_every_field_can_be_set_in_a_file():
  assert list(placement_file._FIELDS) == [f.name for f in dataclasses.fields(Resources)]


def test_a_placement_says_what_differs_from_the_default():
  assert Resources().describe() == 'CPU worker'
  assert (
    Resources(cpus=0, with_launcher=True).describe() == 'CPU worker, with the launcher, cpus: 0'
  )
  resources = Resources(accelerator='tpu', num_devices=4, memory_gb=2, labels={'pool': 'a'})
  assert resources.describe() == 'TPU host, devices: 4 of them, memory: 2 GB, pool=a'
  assert Resources(accelerator='gpu', devices=(1, 3)).describe() == 'GPU host, devices: 1,3'


def test_a_node_with_state_restarts_only_with_checkpoints():
  for period, restart in ((60.0, 'on_failure'), (0.0, 'never')):
    where = sebulba.placement(make(sebulba.Config, checkpoint_period=period).resolve())
    assert {where[g].restart for g in ('inference_learner', 'replay')} == {restart}
    assert {where[g].restart for g in ('actor', 'evaluator', 'monitor')} == {'on_failure'}


def test_secrets_among_the_variables_of_a_node_are_in_no_picture():
  described = Resources(env={'API_KEY': 'hunter2', 'COLOUR': 'green'}).describe()
  assert 'API_KEY=***' in described and 'COLOUR=green' in described and 'hunter2' not in described
