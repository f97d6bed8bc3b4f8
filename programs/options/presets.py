"""Presets that several programs share."""

# V-trace swings the pendulum of Gymnasium and gymnax up. Costs are from 0 to 16.3 at each step, so they
# are scaled; without a bonus for entropy the policy is sure of itself before it has been up once.
PENDULUM = {
  'discount': 0.95,
  'vtrace_lambda': 0.95,
  'unroll_length': 10,
  'reward_scale': 0.1,
  'entropy_cost': 0.03,
  'learning_rate': 2e-3,
  'max_gradient_norm': 1.0,
  'mlp_sizes': (64, 64),
  'num_steps': 1_000_000,
}
