import pytest

from launchers.local import capacity
from launchers.placement import Resources
from tests.launchers import nodes


def graph(**sizes):
  """Returns a graph with as many nodes in each group."""
  program = nodes.program()
  program.groups.clear()
  program.groups.update({label: [None] * size for label, size in sizes.items()})
  return program


@pytest.mark.parametrize('chips', [((), ()), ((0, 1), ()), ((0, 1), (1, 2))])
def test_two_groups_do_not_get_the_same_tpu_chips_on_one_machine(chips):
  def where(accelerator, chips):
    one, other = (Resources(accelerator=accelerator, devices=devices) for devices in chips)
    return {'learner': one, 'actor': Resources(), 'inference': other}

  program = graph(learner=1, actor=4, inference=1)
  with pytest.raises(ValueError, match=r"groups 'learner' and 'inference' .* the same TPU chips"):
    capacity.check(program, where('tpu', chips), one_process=False)
  capacity.check(program, where('gpu', chips), one_process=False)
  capacity.check(program, where('tpu', ((0, 1), (2,))), one_process=False)


def test_two_nodes_of_a_group_do_not_get_the_same_tpu_chips_on_one_machine():
  placement = {'learner': Resources(accelerator='tpu'), 'evaluator': Resources()}
  capacity.check(graph(learner=1), placement, one_process=False)  # Without an evaluator.
  with pytest.raises(ValueError, match=r"the 2 nodes of group 'learner' would open the same TPU"):
    capacity.check(graph(learner=2), placement, one_process=False)


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
