"""The members of a population, as watch.py and the page show them."""

from rich.console import Console

from rundir.lineage import Event, Lineage
from viewing import population


def event(number, member, score, source=None, source_member=None, rate=1e-3):
  values = {'learning_rate': rate}
  return Event(number, number, member, 1, number, {}, score, values, source, source_member, values)


def test_a_run_without_a_lineage_has_no_members(tmp_path):
  assert population.table(str(tmp_path)) is None and population.timeline(str(tmp_path), 9) == []


def test_the_best_come_first_with_what_they_continue_as(tmp_path):
  lineage = Lineage(str(tmp_path))
  for found in (
    event(1, 0, 2.0),
    event(2, 1, 1.0, 1, 0, 8e-4),
    event(3, 2, None),
    event(4, 1, 3.0, rate=8e-4),
    event(5, 2, None, 4, 1, 6.4e-4),
  ):
    lineage.append(found)
  console = Console(width=80, record=True, file=open('/dev/null', 'w'))  # noqa: SIM115
  console.print(population.table(str(tmp_path)))
  rows = [line.split() for line in console.export_text().splitlines() if 'member/' in line]
  rows = [[word for word in row if word != '│'] for row in rows]
  assert rows == [
    ['member/1', '3', '0.0008', '1', 'itself'],
    ['member/0', '2', '0.001', '0', 'itself'],
    ['member/2', 'not', 'finite', '0.00064', '1', 'member/1'],
  ]
  assert population.timeline(str(tmp_path), 1) == [
    {
      'time': 5,
      'kind': 'replacement',
      'node': 'member/2',
      'text': 'member/2 continues as member/1, with learning_rate 0.00064',
    }
  ]
