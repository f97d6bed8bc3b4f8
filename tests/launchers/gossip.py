"""A program whose nodes call each other in a cycle, for engines of clusters to launch."""

import dataclasses

from agents.options import make
from programs import gala
from rundir import curves, run_end
from tests.programs_under_test import ENVIRONMENT


def _quick(resources):
  return dataclasses.replace(resources, env={**resources.env, **ENVIRONMENT})


class Gossip:
  """The scenario, for a class of tests with a fixture `engine`; see `contract`."""

  def test_peers_reach_each_other_and_train_to_their_end(self, engine, tmp_path):
    config = make(
      gala.Config,
      run_dir=str(tmp_path),
      num_peers=2,
      gossip='blocking',  # No peer can train without having heard of the other.
      num_steps=400,
      num_envs=4,
      mlp_sizes=(8,),
      eval_episodes=2,
    ).resolve()
    config.validate()
    placement = {name: _quick(group) for name, group in gala.placement(config).items()}
    code, output = engine.launch(gala.make_program(config), tmp_path, placement)
    assert code == 0, output
    summary = run_end.read_summary(str(tmp_path))
    assert summary['learners'].keys() == {'peer/0', 'peer/1'}
    for peer, counts in summary['learners'].items():
      assert counts['actor_steps'] >= 200
      assert max(curves.read(str(tmp_path), peer, 'gossip_received')) > (0.0,)
    assert engine.nodes(tmp_path) == []
