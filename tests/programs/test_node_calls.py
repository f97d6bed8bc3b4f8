"""The calls between the nodes of every program carry data: no node unpickles what another one sends."""

import dataclasses
import pickle

import launchpad as lp
import pytest
from launchpad.launch.test_multi_threading.address_builder import bind_addresses

import courier
from agents.options import make as make_config
from launchers.graph import handles
from programs import registry
from tests.courier import hostile
from tests.waiting import DEADLINE

OWN = 'examples/mine.py:make_program'  # Has an observer of the user's, a stock node.
GRAPHS = [
  ('sebulba', {'num_actors': 3}),
  ('sebulba', {'num_replicas': 2}),
  ('sebulba', {'num_actors': 4, 'inference_nodes': 2}),
  ('muzero', {'reanalyse_nodes': 2, 'reanalyse_share': 0.5}),
  ('qt_opt', {'bellman_updaters': 2, 'batch_size': 8}),
  ('r2d2', {'inference_nodes': 2}),
  ('sac', {}),
  ('impala', {'num_actors': 3}),
  ('offline', {'num_replay_shards': 2}),
  ('gala_sebulba', {'num_peers': 2}),
  ('anakin', {}),
  ('anakin', {'num_replicas': 2}),
  ('intrinsic_rewards', {}),
  ('evolution', {'num_workers': 3}),
  ('gala', {'num_peers': 3}),
  ('population', {'num_members': 3}),
  ('population_sebulba', {'num_members': 2}),
  (OWN, {}),
  (OWN, {'num_actors': 2, 'inference_nodes': 2}),
]
VALUE = ({'x': 1.5}, b'')


class Served:
  """Stands for the object of a node."""

  def set_courier_server(self, server):
    self.server = server
    server.Start()

  def echo(self, value):
    return value


@dataclasses.dataclass
class Address:
  """An `lp.AbstractAddressBuilder`."""

  address: str

  def build(self):
    return self.address


def make(name, run_dir, **options):
  """Returns the graph of a program."""
  module = registry.load(name)
  config = make_config(module.Config, run_dir=str(run_dir), **options).resolve()
  config.validate()
  return module.make_program(config)


@pytest.mark.parametrize('name, options', GRAPHS)
def test_captured_nodes_run_no_code_in_others(name, options, tmp_path):
  graph = handles.nodes(make(name, tmp_path / 'run', **options))
  nodes = [part for each in graph for part in handles.parts(each.node)]
  held = [h for node in nodes for h in node.input_handles if isinstance(h, lp.CourierHandle)]
  bomb = hostile.Bomb(tmp_path / 'ran')
  bind_addresses(nodes)
  servers = []
  for node in nodes:
    if isinstance(node, lp.CourierNode):
      module = str(getattr(node._constructor, 'module', ''))
      served, is_ours = Served(), module.startswith('nodes.')
      node._constructor = lambda *args, _served=served, **kwargs: _served
      node.run()
      servers.append(served.server)
      if is_ours:
        client = courier.Client(served.server.address, call_timeout=DEADLINE)
        with pytest.raises(
          courier.StatusNotOk, match='arguments of echo cannot be read: only data'
        ):
          client.echo(bomb)
  assert servers and held
  for handle in held:
    assert handle.dereference().echo(VALUE) == VALUE
  for server in servers:
    server.Stop()

  with hostile.server(pickle.dumps(bomb)) as address:
    for each in (each for node in nodes for each in node.addresses):
      each.bind(Address(address))
    for handle in held:
      with pytest.raises(courier.StatusNotOk, match='result of echo cannot be read: only data'):
        handle.dereference().echo(1)
  assert not bomb.path.exists()


def test_every_program_is_covered():
  assert {name for name, _ in GRAPHS} == {*registry.PROGRAMS, OWN}
