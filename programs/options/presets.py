"""Presets that several programs share."""

from __future__ import annotations

from typing import Any


def taken(preset: dict[str, Any], *names: str) -> dict[str, Any]:
  """Returns these options of another preset."""
  return {name: preset[name] for name in names}


# V-trace learns the pendulum swing-up of Gymnasium and gymnax with these. Costs are 0 to 16.3 per step,
# so rewards are scaled. Without the entropy bonus the policy is deterministic before its first swing-up.
PENDULUM = {
  'discount': 0.95,
  'vtrace_lambda': 0.95,
  'unroll_length': 10,
  'normalize_rewards': False,
  'reward_scale': 0.1,
  'entropy_cost': 0.03,
  'learning_rate': 2e-3,
  'learning_rate_schedule': 'constant',
  'max_gradient_norm': 1.0,
  'mlp_sizes': (64, 64),
  'num_steps': 1_000_000,
}

# V-trace's, for any rewards. On CartPole and Acrobot, whose returns reach 100, raw rewards make the
# policy deterministic before the value is learned.
VTRACE_SMALL = {'normalize_rewards': True, 'learning_rate_schedule': 'linear'}

# PPO's first values are published ones; see docs/agents.md. CleanRL's for control with few features
# (ppo.py), with as many transitions in a batch, and normalised rewards: without them PPO does not learn
# Acrobot.
PPO_SMALL = {
  'normalize_rewards': True,
  'unroll_length': 32,
  'learning_rate': 2.5e-4,
  'learning_rate_schedule': 'linear',
  'clip_value': 0.2,
  'mlp_sizes': (64, 64),
  'activation': 'tanh',
  'init': 'orthogonal',
}
# RL Baselines3 Zoo's for LunarLander, whose landings take hundreds of steps.
PPO_LUNAR_LANDER = PPO_SMALL | {
  'discount': 0.999,
  'gae_lambda': 0.98,
  'unroll_length': 128,
  'learning_rate': 3e-4,
  'num_minibatches': 32,
  'minibatch_of': 'transitions',
  'num_steps': 1_000_000,
}
# CleanRL's for continuous control (ppo_continuous_action.py), for small and bounded observations.
PPO_CONTINUOUS = PPO_SMALL | {
  'unroll_length': 128,
  'learning_rate': 3e-4,
  'num_epochs': 10,
  'num_minibatches': 32,
  'minibatch_of': 'transitions',
  'entropy_cost': 0.0,
  'policy_std': 'free',
  'separate_critic': True,
  'num_steps': 1_000_000,
}
PPO_MUJOCO = PPO_CONTINUOUS | {'normalize_observations': True}
# As many environments as unrolls in a batch, so that no unroll is older than an update. With more of
# them swingup is unlearned now and then; walker/walk learns the same, and HalfCheetah learns more.
PPO_SWINGUP = PPO_MUJOCO | {'envs_per_actor': 8}
# Gymnasium's tasks in MuJoCo.
MUJOCO = (
  'Ant',
  'HalfCheetah',
  'Hopper',
  'Humanoid',
  'HumanoidStandup',
  'InvertedDoublePendulum',
  'InvertedPendulum',
  'Pusher',
  'Reacher',
  'Swimmer',
  'Walker2d',
)
# V-trace's, with PPO's network. V-trace does one gradient step a batch, so batches are small, and few
# environments keep unrolls fresh: eight times fewer updates learn a third or less of this.
VTRACE_CONTINUOUS = VTRACE_SMALL | {
  **taken(PPO_MUJOCO, 'entropy_cost', 'policy_std', 'separate_critic', 'normalize_observations'),
  **taken(PPO_MUJOCO, 'mlp_sizes', 'activation', 'init', 'num_steps'),
  'vtrace_lambda': 0.95,
  'unroll_length': 16,
  'batch_size': 2,
  'num_actors': 1,
  'envs_per_actor': 8,
  'learning_rate': 1e-3,
  'max_gradient_norm': 0.5,
}
# At a rate of 1e-3 more seeds lose what they have learned of these.
VTRACE_HOPPER = VTRACE_CONTINUOUS | {'learning_rate': 3e-4}
VTRACE_SWINGUP = VTRACE_CONTINUOUS | {'learning_rate': 5e-4}
# V-trace's on LunarLander: the horizon of PPO's, few environments, so that unrolls are fresh, and many
# small batches. The horizon alone, and small batches alone, did not land.
VTRACE_LUNAR_LANDER = VTRACE_SMALL | {
  **taken(PPO_LUNAR_LANDER, 'discount', 'num_steps'),
  'vtrace_lambda': 0.98,
  'unroll_length': 64,
  'batch_size': 2,
  'num_actors': 1,
  'envs_per_actor': 16,
  'learning_rate': 1e-3,
  'separate_critic': True,
  'max_gradient_norm': 0.5,
}
# Cleanba's on Atari (cleanba_ppo.py).
PPO_ATARI = {
  'unroll_length': 128,
  'learning_rate': 2.5e-4,
  'learning_rate_schedule': 'linear',
  'clip_ratio': 0.1,
  'init': 'orthogonal',
  'frame_stack': 4,
  'max_abs_reward': 1.0,
  'num_steps': 10_000_000,
}
# Pong on two cores, over the preset of Atari: CleanRL's settings for Pong in minutes (its README), with
# twice its rate and environments, half its unrolls, and the game's own actions. DQN's convolutions on
# 84 x 84 pixels take five times the arithmetic.
PPO_PONG = {
  'env_options': 'full_action_space=false,screen=42',
  'torso': 'small',
  'num_actors': 2,
  'envs_per_actor': 16,
  'unroll_length': 64,
  'batch_size': 32,
  'queue_size': 32,
  'num_epochs': 3,
  'num_minibatches': 8,
  'minibatch_of': 'transitions',
  'clip_ratio': 0.2,
  'learning_rate': 5e-4,
  'num_steps': 6_000_000,
}
# PureJaxRL's on MinAtar, with a convolution in place of its layers.
PPO_MINATAR = {
  'normalize_rewards': False,
  'unroll_length': 128,
  'learning_rate': 5e-3,
  'learning_rate_schedule': 'linear',
  'clip_value': 0.2,
  'num_minibatches': 8,
  'minibatch_of': 'transitions',
  'init': 'orthogonal',
  'num_steps': 10_000_000,
}
# Those of Navix (navix/agents/ppo.py), for its grids.
PPO_NAVIX = {
  'normalize_rewards': False,
  'num_envs': 16,
  'unroll_length': 128,
  'learning_rate': 2.5e-4,
  'learning_rate_schedule': 'linear',
  'clip_value': 0.2,
  'num_epochs': 1,
  'num_minibatches': 8,
  'minibatch_of': 'transitions',
  'torso': 'mlp',
  'mlp_sizes': (64, 64),
  'activation': 'tanh',
  'separate_critic': True,
  'num_steps': 1_000_000,
}
# Craftax's (Craftax_Baselines, ppo.py), with fewer steps than its billion.
PPO_CRAFTAX = {
  'normalize_rewards': False,
  'num_envs': 1024,
  'unroll_length': 64,
  'gae_lambda': 0.8,
  'learning_rate': 2e-4,
  'learning_rate_schedule': 'linear',
  'max_gradient_norm': 1.0,
  'clip_value': 0.2,
  'num_minibatches': 8,
  'minibatch_of': 'transitions',
  'mlp_sizes': (512, 512, 512),
  'activation': 'tanh',
  'init': 'orthogonal',
  'separate_critic': True,
  'num_steps': 100_000_000,
}

# PQN's are those of its authors (purejaxql, config/alg), except for exploration; see `PQNConfig`. For
# CartPole and Acrobot; an episode of 500 steps has a return of 50 with this scale.
PQN_SMALL = {
  'reward_scale': 0.1,
  'q_lambda': 0.95,
  'unroll_length': 64,
  'num_epochs': 4,
  'num_minibatches': 16,
  'learning_rate': 1e-4,
  'learning_rate_schedule': 'linear',
  'mlp_sizes': (256, 256),
}
PQN_MINATAR = {'learning_rate_schedule': 'linear', 'num_steps': 10_000_000}
PQN_ATARI = {
  'learning_rate': 2.5e-4,
  'frame_stack': 4,
  'max_abs_reward': 1.0,
  'num_steps': 10_000_000,
}
# Pong on two cores, over the preset of Atari: screens, actions, convolutions and environments of PPO's.
PQN_PONG = {
  **taken(PPO_PONG, 'env_options', 'torso', 'num_actors', 'envs_per_actor', 'batch_size'),
  **taken(PPO_PONG, 'queue_size', 'num_steps'),
  'num_minibatches': 8,  # Of 128 transitions, as in the larger batches of the preset.
}

# Espeholt et al. 2018, table G.1 and section 5.3.2: experts on one game with the deep network. The decay
# of RMSProp is that of their code, and the paper has 200 million frames.
IMPALA_ATARI = {
  'torso': 'impala',
  'hidden_size': 256,
  'frame_stack': 4,
  'max_abs_reward': 1.0,
  'unroll_length': 20,
  'batch_size': 32,
  'discount': 0.99,
  'baseline_cost': 0.5,
  'entropy_cost': 0.01,
  'loss_reduction': 'sum',
  'optimizer': 'rmsprop',
  'rmsprop_decay': 0.99,
  'rmsprop_eps': 0.01,
  'rmsprop_eps_place': 'inside',
  'learning_rate': 6e-4,
  'learning_rate_schedule': 'linear',
  'max_gradient_norm': 40.0,
  'env_options': 'sticky_actions=0,noop_max=30,full_action_space=false,life_loss_terminates=true',
  'num_steps': 50_000_000,
}

# R2D2's, for small networks in short runs.
R2D2_SMALL = {
  'core_size': 64,
  'head_size': 64,
  'burn_in': 8,
  'unroll_length': 20,
  'n_step': 3,
  'discount': 0.99,
  'learning_rate': 1e-3,
  'batch_size': 32,
  'replay_size': 5_000,
}

# MuZero's, for two cores: small networks, and a few simulations of Gumbel's search.
MUZERO_LEARNER = {
  'mlp_sizes': (64,),
  'hidden_state_size': 64,
  'head_size': 64,
  'num_simulations': 8,
  'unroll_length': 8,
  'discount': 0.99,
  'num_bins': 41,
  'max_bin': 20.0,
  'learning_rate': 2e-3,
  'batch_size': 64,
  'updates_per_batch': 8,
  'target_update_period': 12,
  'min_replay_size': 200,
  'replay_size': 10_000,
  'samples_per_insert': 4.0,
  # With an exponent of 1 the importance weights, over the largest of a batch, are mostly small.
  'priority_exponent': 0.6,
}
MUZERO_SMALL = MUZERO_LEARNER | {'num_actors': 1, 'envs_per_actor': 16}
MUZERO_CATCH = MUZERO_SMALL | {'num_steps': 200_000}
# A few channels and no blocks, for CPUs. Rewards are rare and values small, so bins are 0.1 apart, and a
# gradient step has 128 starts.
MUZERO_PIXELS = {
  'model_channels': 8,
  'model_blocks': 0,
  'head_channels': 4,
  'num_bins': 201,
  'max_bin': 10.0,
  'value_cost': 0.5,
  'updates_per_batch': 4,
  'target_update_period': 50,
}
MUZERO_MINATAR = MUZERO_SMALL | MUZERO_PIXELS | {'num_steps': 1_000_000}
# The tower at a quarter of its width and depth, for one accelerator.
MUZERO_ATARI = {
  'frame_stack': 4,
  'model_channels': 64,
  'model_blocks': 4,
  'num_simulations': 16,
  'learning_rate': 1e-3,
  'batch_size': 32,
  'min_replay_size': 1_000,
  'replay_size': 25_000,
  'samples_per_insert': 2.0,
  'num_steps': 10_000_000,
}
# Pong on two cores, over the preset of Atari: screens, actions and convolutions of PPO's preset, and the
# actors, search, bins, discount and ratio of MinAtar's. An hour is too short for it: see docs/results.
MUZERO_PONG = {
  **taken(PPO_PONG, 'env_options', 'torso'),
  **taken(MUZERO_MINATAR, 'num_actors', 'envs_per_actor', 'num_simulations', 'discount'),
  **taken(MUZERO_MINATAR, 'num_bins', 'max_bin', 'value_cost', 'updates_per_batch'),
  **taken(MUZERO_MINATAR, 'samples_per_insert', 'priority_exponent'),
  'hidden_state_size': 128,
  'num_steps': 1_500_000,
}
# MuZero Reanalyze at 200 million frames (Schrittwieser et al. 2020, appendix H), with the optimizer, the
# target network and the blocks of Schrittwieser et al. 2021. 1,024 starts in a batch are 32 unrolls. The
# 32 last actions beside its frames, and its sampling of single states, are not here.
MUZERO_PUBLISHED = {
  'frame_stack': 32,
  'model': 'residual',
  'model_channels': 256,
  'model_blocks': 10,
  'search': 'puct',
  'num_simulations': 50,
  'unroll_length': 32,
  'num_unroll_steps': 5,
  'n_step': 5,
  'discount': 0.997,
  'value_cost': 0.25,
  'bootstrap': 'target',
  'target_update_period': 100,
  'reanalyse_fraction': 0.8,
  'learning_rate': 1e-4,
  'learning_rate_schedule': 'cosine',
  'weight_decay': 1e-4,
  'batch_size': 32,
  'replay_size': 780_000,
  'samples_per_insert': 2.0,
  'priority_exponent': 1.0,
  'importance_exponent': 1.0,
  'env_options': 'screen=96,sticky_actions=0,noop_max=30',
  'num_steps': 50_000_000,
}

# QT-Opt for state observations and a few actions, in short runs. Twenty thousand steps need a shorter
# average and lag than the paper's fifteen million updates.
QT_OPT_SMALL = {
  'mlp_sizes': (64,),
  'discount': 0.95,
  'reward_scale': 0.1,
  'learning_rate': 1e-3,
  'averaging': 0.99,
  'target_update_period': 200,
  'num_actors': 1,
  'envs_per_actor': 8,
  'batch_size': 64,
  'min_replay_size': 500,
  'replay_size': 100_000,
  'samples_per_insert': 32.0,
  'num_steps': 20_000,
}

# SAC's on control by states. RL Baselines3 Zoo has a million steps for MuJoCo, and 20,000 at a higher
# rate for Pendulum. All else is SAC's default.
SAC_MUJOCO = {'num_steps': 1_000_000}
SAC_PENDULUM = {'learning_rate': 1e-3, 'num_steps': 20_000}
