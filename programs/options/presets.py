"""Presets that several programs share."""

# V-trace learns the pendulum swing-up of Gymnasium and gymnax with these. Costs are 0 to 16.3 per step,
# so rewards are scaled. Without the entropy bonus the policy is deterministic before its first swing-up.
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
