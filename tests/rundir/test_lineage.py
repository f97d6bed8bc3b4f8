"""The lineage of a population in a run directory."""

import json

from rundir import lineage
from rundir.lineage import Event, Lineage

FIRST = Event(
  1, 1.5, 0, 2**61, 1, {'actor_steps': 5}, -1.0, {'discount': 0.5}, None, None, {'discount': 0.5}
)
SECOND = FIRST._replace(event=2, member=3, score=None, source=1, source_member=0)


def test_events_are_read_as_they_were_appended(tmp_path):
  assert lineage.read(str(tmp_path)) == []
  Lineage(str(tmp_path)).append(FIRST)
  Lineage(str(tmp_path)).append(SECOND)
  assert lineage.read(str(tmp_path)) == [FIRST, SECOND]


def test_an_event_that_was_not_completed_is_dropped(tmp_path):
  Lineage(str(tmp_path)).append(FIRST)
  with open(lineage.path(str(tmp_path)), 'a') as file:
    file.write('{"event": 2, "time"')
  assert lineage.read(str(tmp_path)) == [FIRST]
  Lineage(str(tmp_path)).append(SECOND)
  assert lineage.read(str(tmp_path)) == [FIRST, SECOND]


def test_lines_of_a_stranger_are_no_events(tmp_path):
  fields = FIRST._asdict()
  changes = (
    *({'member': '[red]0'}, {'score': 'high'}, {'values': {'\x1b[2J': 1.0}}, {'values': [1.0]}),
    *({'next_values': {'discount': '1'}}, {'source': 1}, {'time': None, 'further': 1}),
  )
  with open(lineage.path(str(tmp_path)), 'w') as file:
    for line in ('[]', '7', 'null', '{}', '[' * 10**5, *(json.dumps(fields | c) for c in changes)):
      file.write(line + '\n')
    file.write(json.dumps(fields) + '\n')
  assert lineage.read(str(tmp_path)) == [FIRST]
