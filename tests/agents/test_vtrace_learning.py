"""V-trace learns Catch from old policies, and only because it corrects for them."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np

from agents.types import FIRST, LAST, MID, Unroll
from agents.vtrace.agent import VTrace
from agents.vtrace.config import VTraceConfig
from tests.agents import jax_catch

CONFIG = VTraceConfig(unroll_length=20, learning_rate=2e-3, baseline_cost=1.0)
NUM_ENVS = 32
LAG = 64  # Updates between the parameters that act and those that learn.
FRAMES = 250_000
SOLVED, EPISODES = 0.95, 500


def test_catch_follows_the_row_contract():
  key = jax.random.key(0)
  state, timestep = jax_catch.reset(key)
  ball = int(state.ball_x)
  step = jax.jit(jax_catch.step)
  rows = [timestep]
  for _ in range(10):  # Nine moves end the game; the tenth step begins another.
    action = int(np.sign(ball - int(state.paddle_x))) + 1
    state, timestep = step(state, action, key)
    rows.append(timestep)
  assert [int(r.step_type) for r in rows] == [FIRST] + [MID] * 8 + [LAST, FIRST]
  assert [float(r.reward) for r in rows] == [0.0] * 9 + [1.0, 0.0]
  assert [float(r.discount) for r in rows] == [1.0] * 9 + [0.0, 1.0]
  assert rows[3].observation.shape == (10, 5) and rows[3].observation[3, ball] == 1.0


def without_correction(agent, state, unrolls):
  """Pretends that the learner's own policy acted, so that every importance weight is 1."""
  timestep = jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), unrolls.timestep)
  output, _ = agent.network.unroll(
    state.params, unrolls.core_state, timestep, jnp.swapaxes(unrolls.action, 0, 1)
  )
  return unrolls._replace(extras={'behaviour_logits': jnp.swapaxes(output.logits, 0, 1)})


@functools.partial(jax.jit, static_argnums=1)
def train(key, corrected):
  """Returns rewards and step types `[updates, T, B]` of a run, in the order of time."""
  agent = VTrace(CONFIG, jax_catch.OBSERVATION_SPEC, jax_catch.ACTION_SPEC)
  exploration = jnp.asarray(agent.exploration(NUM_ENVS))
  init_key, env_key, key = jax.random.split(key, 3)
  learner = agent.init(init_key)
  ring = jax.tree.map(lambda x: jnp.broadcast_to(x, (LAG + 1, *x.shape)), learner.params)
  environment, timestep = jax.vmap(jax_catch.reset)(jax.random.split(env_key, NUM_ENVS))

  def act(params, version, core_state, timestep, key):
    keys = jax.random.split(key, NUM_ENVS)
    answer = agent.act(params, core_state, timestep, exploration, keys)
    row = (timestep, answer.action, answer.extras, jnp.full((NUM_ENVS,), version))
    return answer.core_state, row

  def iteration(carry, key):
    learner, ring, environment, core_state, row = carry
    before, last_row = core_state  # Before and after the row that the previous unroll ended with.
    version = jnp.maximum(learner.learner_steps - LAG, 0)
    params = jax.tree.map(lambda x: x[version % (LAG + 1)], ring)

    def environment_step(carry, key):
      environment, core_state, action, _ = carry
      env_key, act_key = jax.random.split(key)
      environment, timestep = jax.vmap(jax_catch.step)(
        environment, action, jax.random.split(env_key, NUM_ENVS)
      )
      after, row = act(params, version, core_state, timestep, act_key)
      return (environment, after, row[1], core_state), row

    (environment, after, _, at_last), rows = jax.lax.scan(
      environment_step,
      (environment, last_row, row[1], last_row),
      jax.random.split(key, CONFIG.unroll_length),
    )
    rows = jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), row, rows)
    batch = jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), rows)
    unrolls = Unroll(*batch, core_state=before, environment_id=jnp.arange(NUM_ENVS))
    if not corrected:
      unrolls = without_correction(agent, learner, unrolls)
    learner = agent.update(learner, unrolls).state
    slot = learner.learner_steps % (LAG + 1)
    ring = jax.tree.map(lambda x, p: x.at[slot].set(p), ring, learner.params)
    row = jax.tree.map(lambda x: x[-1], rows)
    played = (rows[0].reward[1:], rows[0].step_type[1:])
    return (learner, ring, environment, (at_last, after), row), played

  key, act_key = jax.random.split(key)
  before = agent.initial_core_state(NUM_ENVS)
  after, row = act(learner.params, jnp.int32(0), before, timestep, act_key)
  num_updates = FRAMES // (NUM_ENVS * CONFIG.unroll_length)
  carry = (learner, ring, environment, (before, after), row)
  return jax.lax.scan(iteration, carry, jax.random.split(key, num_updates))[1]


def frames_to_solve(rewards, step_types):
  """Frames until the mean return of the last 500 episodes reaches 0.95, or infinity."""
  rewards, step_types = np.ravel(rewards), np.ravel(step_types)
  frames = np.flatnonzero(step_types == LAST) + 1
  returns = np.convolve(rewards[step_types == LAST], np.ones(EPISODES) / EPISODES, 'valid')
  solved = np.flatnonzero(returns >= SOLVED)
  return frames[solved[0] + EPISODES - 1] if solved.size else np.inf


def test_old_policies_need_the_importance_correction():
  keys = jax.random.split(jax.random.key(0), 8)
  solved = {}
  for corrected in (True, False):
    rewards, step_types = jax.vmap(lambda key, c=corrected: train(key, c))(keys)
    solved[corrected] = [frames_to_solve(r, s) for r, s in zip(rewards, step_types, strict=True)]
  assert np.sum(np.isfinite(solved[True])) >= 6, solved
  assert np.sum(np.isinf(solved[False])) >= 6, solved
