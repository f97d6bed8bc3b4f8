"""--envs_per_actor=auto, --inference_batch_size=auto: what is chosen, from which costs."""

import json
import re

import pytest

from environments import separate_process
from nodes.runtime.timing import Cost
from programs import registry, size_benchmark, size_choice
from programs.options import configs
from programs.size_choice import Machine, Size
from tests.programs_under_test import DONE, SMALL, launch, run_main

TWO_CORES = Machine(2, actors=2, apart=True)
_US = 1e-6


class Model:
  """Costs of a fixed and a proportional part, in microseconds; notes what was asked."""

  def __init__(self, environment=(0, 0), request=(0, 0), inference=(0, 0)):
    self._parts = environment, request, inference
    self.stepped, self.batches = [], []

  def _cost(self, kind, rows):
    fixed, each = self._parts[kind]
    return Cost(_US * (fixed + each * rows), _US * (fixed + each * rows))

  def environment(self, num_envs):
    self.stepped.append(num_envs)
    return self._cost(0, num_envs)

  def request(self, num_envs):
    return self._cost(1, num_envs)

  def inference(self, num_requests, num_envs):
    self.batches.append(num_requests * num_envs)
    return self._cost(2, num_requests * num_envs)


def _envs(*numbers):
  """Returns sizes of two groups, of which a batch holds two."""
  return {n: [Size(n, n, n // 2, 2)] for n in numbers}


@pytest.mark.parametrize(
  'costs, chosen',
  [
    # 11 us a step with 32, 6 with 64, 3.5 with 128.
    ({'request': (160, 1)}, 128),
    # 5.5 us, 5.25 and 5.125, which is 93% of 5.5.
    ({'environment': (0, 5), 'request': (8, 0)}, 32),
    # 8.5 us, 6.75 and 5.875, which is 87% of 6.75.
    ({'environment': (0, 5), 'request': (56, 0)}, 128),
    # 7 us, 6 and 5.5, which is 79% of 7 and 92% of 6.
    ({'environment': (0, 5), 'request': (32, 0)}, 64),
    ({'environment': (0, 500), 'request': (100, 0), 'inference': (200, 300)}, 32),
  ],
)
def test_the_smallest_number_with_nine_tenths_of_the_best_rate_is_chosen(costs, chosen):
  found, tried, _ = size_choice.choose(_envs(32, 64, 128), Model(**costs), TWO_CORES)
  assert found.size.envs_per_actor == chosen
  assert [each.size.envs_per_actor for each in tried] == [32, 64, 128]


def test_a_rate_is_what_the_scarcest_of_cores_actors_and_server_allows():
  size = Size(64, 64, 32, 2)
  model = Model(environment=(0, 10), request=(64, 0), inference=(0, 1))
  rate = lambda *machine: size_choice.acting(size, model, Machine(*machine)).rate  # noqa: E731
  # A step is 10 us of an environment, 2 us of a request and 1 us of inference.
  assert rate(1, 2, True) == pytest.approx(1e6 / 13)
  assert rate(100, 2, True) == pytest.approx(2e6 / 11)
  assert rate(100, 50, True) == pytest.approx(1e6 / 2)
  assert rate(100, 2, False) == pytest.approx(2e6 / 13)


def test_no_larger_number_is_tried_once_a_step_of_all_is_long():
  model = Model(environment=(0, 10_000), request=(100, 0))
  found, tried, _ = size_choice.choose(_envs(32, 64, 128), model, TWO_CORES)
  assert found.size.envs_per_actor == 32 and model.stepped == [16] and len(tried) == 1


@pytest.mark.parametrize(
  'inference, chosen, asked',
  [
    ((200, 1), 128, [16, 32, 64, 128]),
    ((20, 10), 16, [16, 32, 64, 128]),
    ((0, 5_000), 16, [16, 32]),  # 0.16 s for a batch of 32.
  ],
)
def test_the_smallest_batch_with_nine_tenths_of_the_best_rate_is_chosen(inference, chosen, asked):
  sizes = {32: [Size(32, 16 * n, 16, n) for n in (1, 2, 4, 8)]}
  model = Model(environment=(0, 1), inference=inference)
  found, _, tried = size_choice.choose(sizes, model, TWO_CORES)
  assert found.size.inference_batch_size == chosen and model.batches == asked
  assert [each.size.inference_batch_size for each in tried] == asked


@pytest.fixture
def unmeasured(monkeypatch):
  """Fails the test if sizes are measured."""
  call = separate_process.call

  def checked(function, *arguments, **others):
    assert not function.startswith('programs.size_benchmark:')
    return call(function, *arguments, **others)

  monkeypatch.setattr(separate_process, 'call', checked)


ENVS, BATCH = ['envs_per_actor'], ['inference_batch_size']


@pytest.mark.parametrize(
  'program, asked, given, sizes, limit',
  [
    (
      'sebulba',
      ENVS,
      {},
      {32: [(32, 16, 2)], 64: [(64, 32, 2)], 128: [(128, 64, 2)]},
      "4 times the preset's 32",
    ),
    ('sebulba', BATCH, {'num_actors': 4}, {32: [(16, 16, 1), (32, 16, 2), (64, 16, 4)]}, ''),
    (
      'sebulba',
      ENVS + BATCH,
      {'num_steps': 2000, 'unroll_length': 20},
      {32: [(16, 16, 1), (32, 16, 2)]},
      '--num_steps=2000 ends before the first batch',
    ),
    (
      'sebulba',
      ENVS,
      {'inference_batch_size': 32},
      {32: [(32, 16, 2)], 64: [(32, 32, 1)]},
      '--inference_batch_size=32 is smaller than one request',
    ),
    ('impala', ENVS, {}, {32: [(32, 32, 1)], 64: [(64, 64, 1)], 128: [(128, 128, 1)]}, '4 times'),
    (
      'qt_opt',
      ENVS,
      {'env': 'gymnasium:Pendulum-v1'},
      {8: [(4, 4, 1)], 16: [(8, 8, 1)], 32: [(16, 16, 1)]},
      '8',
    ),
  ],
)
def test_sizes_begin_with_the_preset_and_fit_the_other_options(program, asked, given, sizes, limit):
  found, why = size_benchmark.candidates(registry.load(program), asked, given)
  assert {
    envs: [(s.inference_batch_size, s.num_envs, s.num_requests) for s in each]
    for envs, each in found.items()
  } == sizes
  assert limit in why
  module = registry.load(program)
  for each in found.values():
    for size in each:
      chosen = {name: getattr(size, name) for name in asked}
      configs.check_numbers(configs.resolve(module, {**given, **chosen}))


@pytest.mark.parametrize(
  'flags, words',
  [
    (['--program=anakin', '--envs_per_actor=auto'], ['--envs_per_actor is not an option of']),
    (['--program=impala', '--inference_batch_size=auto'], ['--inference_batch_size is not an']),
    (['--presets', '--envs_per_actor=auto'], ['--envs_per_actor=auto', 'give a number']),
    (['--seeds=2', '--envs_per_actor=auto'], ['--envs_per_actor=auto', 'a single run']),
    (['--launcher=ray', '--envs_per_actor=auto'], ['--envs_per_actor=auto', 'on this machine']),
    (
      ['--accelerator=gpu', '--inference_batch_size=auto'],
      ['--inference_batch_size=auto measures CPUs', '--accelerator=gpu'],
    ),
    (['--envs_per_actor=auto', '--queue_size=8'], ['--queue_size=8', 'an item has']),
    (['--envs_per_actor=auto', '--env_groups=3'], ['--envs_per_actor=32', '--env_groups=3']),
  ],
)
@pytest.mark.usefixtures('unmeasured')
def test_a_size_that_cannot_be_measured_is_rejected_in_one_sentence(flags, words, capsys):
  assert run_main('--dry_run', *flags) == 2
  captured = capsys.readouterr()
  assert captured.err.startswith('error: ') and captured.err.count('\n') == 1
  for word in words:
    assert word in captured.err


@pytest.mark.slow
@pytest.mark.program
def test_a_run_records_numbers_and_neither_a_resume_nor_a_repetition_measures(
  tmp_path, capsys, request
):
  path = tmp_path / 'run'
  sizes = '--envs_per_actor=auto', '--inference_batch_size=auto'
  process = launch(*SMALL, *sizes, '--mlp_sizes=8', f'--run_dir={path}')
  assert process.returncode == 0 and DONE.search(process.stdout), process.stderr
  chosen = {
    name: int(number)
    for name, number in re.findall(r'^--(\w+)=auto: (\d+) \(', process.stderr, re.M)
  }
  assert chosen.keys() == {'envs_per_actor', 'inference_batch_size'}
  assert process.stderr.count('=auto: ') == 2  # launch.py executes itself again.
  assert chosen['envs_per_actor'] in (32, 64, 128)
  record = json.loads((path / 'config.json').read_text())
  for name, number in chosen.items():
    assert record['given'][name] == record['config'][name] == number

  request.getfixturevalue('unmeasured')
  assert run_main('--dry_run', f'--resume={path}', '--num_steps=9000') == 0
  assert run_main('--dry_run', f'--config={path}/config.json') == 0
  assert '=auto' not in capsys.readouterr().err
