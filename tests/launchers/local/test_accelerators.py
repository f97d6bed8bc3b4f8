import os
import stat

import pytest

from launchers.local import accelerators
from launchers.placement import Resources, environment_variables

GPU = Resources(accelerator='gpu', num_devices=1)


@pytest.fixture
def driver(tmp_path, monkeypatch):
  """Returns a function that puts an nvidia-smi with the given output and exit code on the PATH."""

  def install(output, code=0):
    path = tmp_path / 'nvidia-smi'
    path.write_text(f'#!/bin/sh\ncat <<EOF\n{output}\nEOF\nexit {code}\n')
    path.chmod(path.stat().st_mode | stat.S_IXUSR)

  monkeypatch.setenv('PATH', str(tmp_path), prepend=os.pathsep)
  monkeypatch.delenv('CUDA_VISIBLE_DEVICES', raising=False)
  monkeypatch.setattr(accelerators.importlib.util, 'find_spec', lambda name: name)
  return install


def assigned(placement, size=1):
  """Returns the placement of groups of as many nodes each."""
  return accelerators.assigned(placement, dict.fromkeys(placement, size))


def devices(placement, size=1):
  return {label: resources.devices for label, resources in assigned(placement, size).items()}


def test_groups_get_the_gpus_with_the_most_free_memory_and_none_twice(driver):
  driver('0, 100\n1, 40000\n2, 80000\n3, 79000')
  where = {
    'actor': Resources(),
    'inference': GPU,
    'learner': Resources(accelerator='gpu', num_devices=2),
  }
  assert devices(where) == {'actor': (), 'inference': (2,), 'learner': (1, 3)}
  assert accelerators.describe(assigned(where)) == 'inference: GPU 2, learner: GPU 1,3'


def test_each_node_of_a_job_has_gpus_of_its_own(driver):
  driver('0, 100\n1, 40000\n2, 80000\n3, 79000\n4, 78000')
  job = Resources(accelerator='gpu', num_devices=2, one_job=True)
  chosen = assigned({'learner': job}, size=2)['learner']
  assert chosen.devices == (1, 2, 3, 4)
  seen = [environment_variables(chosen.of_node(i, 2))['CUDA_VISIBLE_DEVICES'] for i in range(2)]
  assert seen == ['1,2', '3,4']
  listed = Resources(accelerator='gpu', devices=(3, 0), one_job=True)
  chosen = assigned({'learner': listed}, size=2)['learner']
  assert [chosen.of_node(i, 2).devices for i in range(2)] == [(3,), (0,)]


def test_gpus_that_cannot_be_divided_over_a_job_are_one_sentence(driver, monkeypatch):
  driver('0, 100\n1, 40000\n2, 80000')
  job = Resources(accelerator='gpu', num_devices=2, one_job=True)
  with pytest.raises(
    ValueError, match=r"^group 'learner' needs 4 .*, 2 for each of its 2 nodes, .* --num_replicas"
  ):
    devices({'learner': job}, size=2)
  listed = Resources(accelerator='gpu', devices=(0, 1, 2), one_job=True)
  with pytest.raises(ValueError, match=r"^group 'learner' lists 3 devices, .* its 2 nodes; .*\.$"):
    devices({'learner': listed}, size=2)
  monkeypatch.setenv('CUDA_VISIBLE_DEVICES', 'GPU-8932f937,GPU-8932f938')
  with pytest.raises(
    ValueError, match=r"^the GPUs of CUDA_VISIBLE_DEVICES=.* group 'learner'; .*\.$"
  ):
    devices({'learner': job}, size=2)


def test_groups_share_where_there_are_too_few(driver):
  driver('0, 100\n1, 40000')
  assert devices({'inference': GPU, 'learner': GPU, 'relabeller': GPU}) == {
    'inference': (1,),
    'learner': (0,),
    'relabeller': (1,),
  }


def test_listed_devices_are_kept_and_avoided(driver):
  driver('0, 100\n1, 40000')
  listed = Resources(accelerator='gpu', devices=(1,))
  assert devices({'inference': GPU, 'learner': listed}) == {'inference': (0,), 'learner': (1,)}


def test_the_users_variable_limits_the_choice(driver, monkeypatch):
  driver('0, 100\n1, 40000\n10, 50000')
  monkeypatch.setenv('CUDA_VISIBLE_DEVICES', '0, 1')
  assert devices({'learner': GPU}) == {'learner': (1,)}
  monkeypatch.setenv('CUDA_VISIBLE_DEVICES', 'GPU-8932f937')
  assert devices({'learner': GPU}) == {'learner': ()}
  monkeypatch.setenv('CUDA_VISIBLE_DEVICES', '')
  with pytest.raises(
    ValueError, match=r"^group 'learner' needs 1 of .* but only 0 are .* CUDA_VISIBLE_DEVICES"
  ):
    devices({'learner': GPU})


@pytest.mark.parametrize(
  ('output', 'code', 'words'),
  [
    (
      'NVIDIA-SMI has failed\nbecause of the driver',
      9,
      'NVIDIA-SMI has failed because of the driver',
    ),
    ('', 0, 'the driver lists none'),
  ],
)
def test_a_driver_without_gpus_is_one_sentence(driver, output, code, words):
  driver(output, code)
  with pytest.raises(
    ValueError, match=rf'^--accelerator=gpu finds no GPU \({words}\); repair [^\n]*\.$'
  ):
    devices({'learner': GPU})


def test_a_missing_driver_or_plug_in_is_one_sentence(driver, monkeypatch, tmp_path):
  monkeypatch.setenv('PATH', str(tmp_path))
  with pytest.raises(ValueError, match=r'nvidia-smi of .* is not on the PATH'):
    devices({'learner': GPU})
  monkeypatch.undo()
  for kind, value in (('gpu', 'cuda'), ('tpu', 'tpu')):
    with pytest.raises(
      ValueError, match=f'^--accelerator={kind} .*`make train ACCELERATOR={value}`'
    ):
      devices({'learner': Resources(accelerator=kind)})


def test_programs_without_gpus_query_no_driver(monkeypatch):
  monkeypatch.setenv('PATH', '')
  monkeypatch.setenv('TPU_LIBRARY_PATH', '/lib/libtpu.so')
  where = {'learner': Resources(accelerator='tpu'), 'actor': Resources()}
  assert assigned(where) == where
