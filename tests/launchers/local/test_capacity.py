import pytest

from launchers.local import capacity
from launchers.placement import Resources
from tests.launchers import nodes


@pytest.mark.parametrize('chips', [((), ()), ((0, 1), ()), ((0, 1), (1, 2))])
def test_two_groups_do_not_get_the_same_tpu_chips_on_one_machine(chips):
  def where(accelerator, chips):
    one, other = (Resources(accelerator=accelerator, devices=devices) for devices in chips)
    return {'learner': one, 'actor': Resources(), 'inference': other}

  sizes = {'learner': 1, 'actor': 4, 'inference': 1}
  with pytest.raises(ValueError, match=r"groups 'learner' and 'inference' .* the same TPU chips"):
    capacity.check(where('tpu', chips), sizes, one_process=False)
  capacity.check(where('gpu', chips), sizes, one_process=False)
  capacity.check(where('tpu', ((0, 1), (2,))), sizes, one_process=False)


def test_two_nodes_of_a_group_do_not_get_the_same_tpu_chips_on_one_machine():
  placement = {'learner': Resources(accelerator='tpu'), 'evaluator': Resources()}
  capacity.check(placement, {'learner': 1}, one_process=False)  # Without an evaluator.
  with pytest.raises(ValueError, match=r"the 2 nodes of group 'learner' would open the same TPU"):
    capacity.check(placement, {'learner': 2}, one_process=False)


def test_far_too_few_cores_get_a_remark(monkeypatch):
  program = nodes.program((nodes.Crasher, False, ''))
  where = {'echo': Resources(cpus=1.5), 'node0': Resources(cpus=15)}
  monkeypatch.setattr('os.sched_getaffinity', lambda pid: {0, 1})
  assert 'ask for 16.5 cores, of which this machine has 2' in capacity.crowding(program, where)
  monkeypatch.setattr('os.sched_getaffinity', lambda pid: {0, 1, 2})
  assert capacity.crowding(program, where) == ''


def test_more_nodes_than_the_launcher_may_have_files_are_refused(monkeypatch):
  program = nodes.program((nodes.Crasher, False, ''))
  monkeypatch.setattr('resource.getrlimit', lambda which: (1024, 4096))
  capacity.check_files(program)
  program.groups['actor'] = [None] * 4000
  with pytest.raises(
    ValueError, match=r'each of the 4,002 nodes, and may open 4,096: .*ulimit -Hn'
  ):
    capacity.check_files(program)
