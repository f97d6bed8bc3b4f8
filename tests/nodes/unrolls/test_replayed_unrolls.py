"""What the server recorded is what the learner computes from it: every row, burn-in included."""

import jax
import numpy as np
import pytest

from agents.r2d2.agent import R2D2
from agents.r2d2.config import R2D2Config
from agents.types import FIRST, LAST
from agents.vtrace.agent import VTrace
from agents.vtrace.config import VTraceConfig
from environments import registry
from environments.catch import Catch
from nodes.inference.layout import layout
from tests.nodes.inference_clients import Client


def make_catch(num_envs, seed):
  return Catch(num_envs, seed, rows=6, columns=5)


def make_pendulum(num_envs, seed):
  return registry.make('gymnasium:Pendulum-v1', num_envs, seed, 'max_episode_steps=5')


SPEC = make_catch(1, 0).spec()
SMALL = {'mlp_sizes': (16,), 'core': 'lstm', 'core_size': 8, 'frame_stack': 3}
AGENTS = {
  'vtrace': (VTrace, VTraceConfig(unroll_length=7, **SMALL), 'behaviour_logits', 'logits'),
  'r2d2': (
    R2D2,
    R2D2Config(burn_in=4, unroll_length=7, n_step=2, head_size=8, **SMALL),
    'q_values',
    None,
  ),
}


@pytest.mark.slow
@pytest.mark.parametrize(
  'name, make_environment',
  [('vtrace', make_catch), ('vtrace', make_pendulum), ('r2d2', make_catch)],
)
def test_replaying_an_unroll_reproduces_what_acted_in_every_row(
  name, make_environment, make_server
):
  make, config, recorded, field = AGENTS[name]
  spec = make_environment(1, 0).spec()
  agent = make(config, spec.observations, spec.actions)
  params = jax.jit(agent.init)(jax.random.key(3)).params
  server, sink = make_server(
    layout(2, 3, 1), agent, batch_size=6, timeout=0.001, spec=spec, params=params, seed=5
  )
  clients = [Client(server, make_environment(3, i), f'actor/{i}') for i in range(2)]
  clients[1].step()  # The second actor is one step ahead, so that batches mix step types.
  for _ in range(40):
    for client in clients:
      client.step()
  server.close()

  assert len(sink.unrolls) >= 8
  states = jax.tree.leaves([u.core_state for u in sink.unrolls[2:]])
  assert any(np.any(leaf) for leaf in states), 'all the stored states are zero'
  step_types = np.concatenate([u.timestep.step_type.ravel() for u in sink.unrolls])
  assert {FIRST, LAST} < set(step_types)
  assert sink.unrolls[0].action.shape == (3, agent.unroll_rows, *spec.actions.shape)
  replayed = jax.jit(agent.network.unroll)
  for unroll in sink.unrolls:
    timestep, action = jax.tree.map(
      lambda x: np.swapaxes(x, 0, 1), (unroll.timestep, unroll.action)
    )
    output, _ = replayed(params, unroll.core_state, timestep, action)
    output = getattr(output, field) if field else output
    np.testing.assert_allclose(
      np.swapaxes(output, 0, 1), unroll.extras[recorded], atol=1e-5, rtol=1e-5
    )


@pytest.mark.slow
def test_initial_priorities_come_from_the_recorded_q_values(make_server):
  agent = R2D2(AGENTS['r2d2'][1], SPEC.observations, SPEC.actions)
  state = jax.jit(agent.init)(jax.random.key(3))
  server, sink = make_server(
    layout(1, 4, 1), agent, batch_size=4, timeout=0.001, spec=SPEC, params=state.params, seed=5
  )
  client = Client(server, Catch(4, 0, rows=6, columns=5))
  for _ in range(40):
    client.step()
  server.close()
  update, initial = jax.jit(agent.update), jax.jit(agent.initial_priorities)
  for unroll in sink.unrolls:
    learned = update(state, unroll, np.ones(4, np.float32)).priorities
    np.testing.assert_allclose(initial(unroll), learned, rtol=1e-4)
