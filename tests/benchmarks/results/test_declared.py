"""Declarations: what names select, what is refused, and the repository's own rows."""

import dataclasses

import pytest

from agents.options import flatten
from benchmarks.results import peer_runs, rows, selection
from benchmarks.results.declared import Experiment, Launch, Peer, Task
from programs import registry
from programs.options import agent_choice, configs


def launch(**changes):
  return Launch(**{'label': 'x', 'program': 'anakin', 'env': 'catch', 'budget': 10} | changes)


def task(name, *labels, **changes):
  made = tuple(launch(label=label, **changes) for label in labels)
  return Task(name=name, title=name, about='', rows=made)


def reading(row, add=True, **changes):
  """Returns a task whose row y reads the runs of another row."""
  reader = launch(label='y', inputs={'init_from': row}, **changes)
  return Task(name='a', title='', about='', rows=(*([row] if add else []), reader))


ENTRIES = selection.entries(
  [task('pong', 'impala', 'sebulba'), task('minatar/asterix', 'anakin'), task('mina', 'anakin')]
)


@pytest.mark.parametrize(
  'names, selected',
  [
    ([], ['pong/impala', 'pong/sebulba', 'minatar/asterix/anakin', 'mina/anakin']),
    (['pong'], ['pong/impala', 'pong/sebulba']),
    (['minatar'], ['minatar/asterix/anakin']),
    (['minatar/*'], ['minatar/asterix/anakin']),
    (['*/anakin', 'pong/s*'], ['pong/sebulba', 'minatar/asterix/anakin', 'mina/anakin']),
  ],
)
def test_names_select_rows_tasks_and_groups_by_glob(names, selected):
  assert [entry.name for entry in selection.select(ENTRIES, names)] == selected


def test_a_name_that_selects_nothing_is_rejected_with_the_closest():
  with pytest.raises(ValueError, match=r"'pomg' names no row; did you mean pong\?; see --list"):
    selection.select(ENTRIES, ['minatar', 'pomg'])


@pytest.mark.parametrize(
  'tasks, said',
  [
    ([task('a', 'x', 'x')], 'a/x twice'),
    ([task('a', 'x'), task('a', 'y')], 'have a twice'),
    ([task('A/b', 'x')], "the task 'A/b' must be"),
    ([task('a', 'X y')], "a: the label 'X y' must be"),
    ([task('a', 'x', seeds=(1, 1))], 'distinct seeds'),
    ([task('a', 'x', budget=0)], 'budget of at least 1'),
    ([task('a', 'x', flags=('--seed=3',))], r"'--seed=3' in its flags; give it as a field"),
    ([task('a', 'x', flags=('core=lstm',))], r"'core=lstm' in its flags"),
    ([reading(launch(), flags=('--init_from=y',))], r"'--init_from=y' in its flags"),
    ([reading(launch(), add=False)], 'a/y reads the run of x by --init_from; add that row to a'),
    (
      [reading(launch(seeds=(1, 3)))],
      'y reads the run of x by --init_from for seed 2; add the seed',
    ),
  ],
)
def test_invalid_declarations_are_rejected(tasks, said):
  with pytest.raises(ValueError, match=said):
    selection.entries(tasks)


def test_settings_are_what_a_run_depends_on():
  row = launch(flags=('--core=lstm',))
  assert dataclasses.replace(row, seeds=(7,)).settings() == row.settings()
  for changes in ({'budget': 11}, {'env': 'cartpole'}, {'program': 'impala'}, {'flags': ()}):
    assert dataclasses.replace(row, **changes).settings() != row.settings(), changes
  preset = launch(env='gymnax:Acrobot-v1').settings()['preset']
  assert preset['learning_rate_schedule'] == 'linear' and 'num_steps' not in preset
  assert launch(flags=('--preset=none',)).settings()['preset'] == {}
  assert launch(flags=('--agent=ppo',)).settings()['preset']['mlp_sizes'] == [64, 64]
  options_set_by_rules = launch(program='r2d2').settings()['preset']['target_update_period']
  assert options_set_by_rules == 'updates / 50, at most 100', 'a rule is its text'
  peer = Peer(label='p', peer='rllib', env='cartpole', budget=5, given={'mlp_sizes': (64, 64)})
  assert peer.settings()['given'] == {'mlp_sizes': [64, 64]}, 'as JSON has it'


def test_a_launch_is_a_command_of_its_fields_and_flags():
  row = launch(flags=('--core=lstm',))
  assert row.arguments(5, 'unread') == [
    *('--program=anakin', '--env=catch', '--num_steps=10', '--seed=5'),
    '--core=lstm',
  ]


def test_a_row_that_reads_another_has_its_settings_and_a_path_to_its_run():
  source, reader = reading(launch(flags=('--core=lstm',))).rows
  assert reader.settings()['inputs'] == {'init_from': source.settings()}
  assert 'inputs' not in source.settings(), 'records of other rows stay valid'
  *_, flag = reader.arguments(2, '/mine/a')
  assert flag == '--init_from=/mine/a/x/2'
  assert reader.command('a/y', 2)[-1] == '--init_from=runs/results/a/x/2'
  assert reader.shown_command('a/y').endswith('--seed=1 --init_from=runs/results/a/x/1')


def split(flag):
  name, _, text = flag.removeprefix('--').partition('=')
  return name, text


def is_agent(flag):
  return flag[0] == 'agent'


def parsed(defaults, name, text):
  """Returns the option and the value of a flag, as absl parses it."""
  if not text:
    name, value = (name, True) if name in defaults else (name.removeprefix('no'), False)
    assert isinstance(defaults[name], bool), name
    return name, value
  assert not isinstance(defaults[name], bool), name
  if isinstance(defaults[name], tuple):
    return name, text.split(',')
  return name, type(defaults[name])(text)


def test_the_repositorys_rows_are_valid_and_their_systems_take_their_settings():
  entries = selection.entries(rows.TASKS)
  assert {group.name for group in rows.GROUPS} == {t.group for t in rows.TASKS} - {''}
  for entry in entries:
    if isinstance(entry.row, (Launch, Experiment)):
      module = registry.load(entry.row.program)
      _, variant = agent_choice.chosen(module, dict(filter(is_agent, map(split, entry.row.flags))))
      defaults = flatten(variant.defaults)
      values = dict(parsed(defaults, *split(flag)) for flag in entry.row.flags)
      if isinstance(entry.row, Launch):
        values |= {'env': entry.row.env, 'num_steps': entry.row.budget}
        for name in entry.row.inputs:
          assert defaults[name] == '', name
          values[name] = 'a/run'
        configs.resolve(module, values).validate()
      else:
        for bsuite_id in entry.row.ids():
          configs.resolve(module, values | {'env': f'bsuite:{bsuite_id}'}).validate()
    else:
      given = peer_runs.driver_settings(entry, entry.row, 1)
      assert (given['env'], given['num_steps']) == (entry.row.env, entry.row.budget)
  for published in (p for t in rows.TASKS for p in t.published):
    assert published.figure and published.protocol and published.source, published
