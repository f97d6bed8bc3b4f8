import re
from xml.etree import ElementTree

import pytest

from agents.options import make
from launchers.graph import describe, picture
from launchers.placement import Resources
from programs import sebulba


@pytest.fixture(scope='module')
def graph():
  config = make(sebulba.Config, num_actors=7, num_replicas=2, num_replay_shards=2).resolve()
  return sebulba.make_program(config), sebulba.placement(config) | {
    'inference_learner': Resources(accelerator='tpu', num_devices=4)
  }


def test_mermaid_has_every_group_with_its_nodes_and_place_and_every_edge(graph):
  program, where = graph
  text = picture.mermaid(program, where)
  boxes = dict(re.findall(r'^  (\w+)\["(.*)"\]:::\w+$', text, re.MULTILINE))
  assert boxes.keys() == program.groups.keys()
  assert boxes['actor'].startswith('actor<br/>14 x Actor<br/>CPU worker')
  assert boxes['inference_learner'].endswith('TPU host, devices: 4 of them')
  assert 'inference_learner["' in text and ']:::accelerator' in text
  arrows = re.findall(r'^  (\w+) -->\|(\d+)\| (\w+)$', text, re.MULTILINE)
  assert {(a, b): int(n) for a, n, b in arrows} == describe.edges(program)
  assert ('actor', '14', 'inference_learner') in arrows


def test_the_svg_draws_every_group_and_edge_inside_its_frame(graph):
  program, where = graph
  root = ElementTree.fromstring(picture.svg(program, where))
  tag = '{http://www.w3.org/2000/svg}'
  texts = [t.text for t in root.findall(f'{tag}text')]
  assert set(program.groups) | {'14 x Actor', '4 x ReplayServer'} <= set(texts)
  assert len(root.findall(f'{tag}path')) == len(describe.edges(program))
  boxes = [b.attrib for b in root.findall(f'{tag}rect')[1:]]
  assert len(boxes) == len(program.groups)
  for i, a in enumerate(boxes):
    assert float(a['x']) + float(a['width']) < float(root.get('width'))
    assert float(a['y']) + float(a['height']) < float(root.get('height'))
    for b in boxes[:i]:
      apart = float(b['y']) + float(b['height']) < float(a['y'])
      assert a['x'] != b['x'] or apart  # Columns do not overlap, nor do boxes in one.


def test_groups_that_call_each_other_in_a_cycle_have_a_column_each():
  edges = {('a', 'b'): 1, ('b', 'a'): 1, ('c', 'b'): 1, ('c', 'c'): 1}
  columns = picture._columns(['a', 'b', 'c'], edges)
  assert sorted(name for column in columns for name in column) == ['a', 'b', 'c']


def test_a_picture_that_cannot_be_written_is_rejected(graph, tmp_path):
  with pytest.raises(ValueError, match=r'--graph=x\.png must end in one of \.svg'):
    picture.write('x.png', *graph)
  with pytest.raises(ValueError, match=r'the graph .* cannot be written'):
    picture.write(str(tmp_path / 'none' / 'x.svg'), *graph)
  picture.write(str(tmp_path / 'x.md'), *graph)
  assert '```mermaid\nflowchart LR\n' in (tmp_path / 'x.md').read_text()
