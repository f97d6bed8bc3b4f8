"""Programs of thousands of nodes: what an engine refuses, and what may not grow faster than they do."""

import sys

import pytest

from agents.options import make
from launchers.engine import Job
from launchers.graph import check, describe, flow
from launchers.k8s import manifests
from launchers.slurm import planning, submit
from launchers.slurm.engine import Slurm
from programs import sebulba
from tests.launchers.k8s.example_run import RUN


def _program(**options):
  config = make(sebulba.Config, run_dir='/runs/wide', **options).resolve()
  return sebulba.make_program(config), sebulba.placement(config)


@pytest.fixture(scope='module')
def actors():
  """The program of 4,096 actors, and its placement."""
  return _program(num_actors=4096)


def test_the_manifests_of_thousands_of_actors_are_small(actors):
  generated = manifests.generate(*actors, RUN, 8900)
  assert sum(map(len, generated.manifests.values())) < 40_000


def test_the_slurm_script_of_thousands_of_actors_is_small(actors):
  program, placement = actors
  job = Job('sebulba', program, placement, {}, {'run_dir': '/runs/wide'})
  assert len(submit.script(job, Slurm(cpu_nodes=64), '/runs/wide')) < 20_000


def test_more_nodes_than_a_slurm_job_has_steps_are_refused(actors):
  _, placement = actors
  counts = dict.fromkeys(placement, 1) | {'actor': 40_000}
  with pytest.raises(ValueError, match=r"at most 40,000 steps.* 40,004 nodes; .* group 'actor'"):
    planning.plan(counts, placement, Slurm())


def test_manifests_that_kubernetes_would_refuse_are_refused():
  servers = _program(num_replay_shards=5000, batch_size=5000, queue_size=10_000)
  with pytest.raises(
    ValueError, match=r'networkpolicy\.yaml .* kubectl apply takes at most 262,144'
  ):
    manifests.generate(*servers, RUN, 8900)
  with pytest.raises(ValueError, match=r'go on to 65,9\d\d, beyond 65,535; lower --k8s_port'):
    manifests.generate(*servers, RUN, 60_000 + 900)


def _calls(num_actors):
  """Returns how many functions a plan calls, of Python or not."""
  count = 0

  def called(frame, event, argument):
    nonlocal count
    count += event in ('call', 'c_call')

  sys.setprofile(called)
  try:
    program, placement = _program(num_actors=num_actors)
    assert not [*check.problems(program, placement)]
    flow.graph(program, placement)
    describe.describe(program, placement)
  finally:
    sys.setprofile(None)
  return count


@pytest.mark.slow
def test_four_times_as_many_actors_take_four_times_as_much_planning():
  _calls(2)  # Imports.
  few, many = _calls(128), _calls(512)
  assert many < 4.5 * few, (few, many)
