from programs import registry
from programs.options import configs, effects


def warned(program='sebulba', **given):
  config = configs.make_config(registry.load(program), given)
  return effects.warnings(config, given)


def test_options_without_effect_are_named():
  assert warned(core_size=7, forget_bias=3.0, rmsprop_eps=0.5, adam_b1=0.8) == [
    '--core_size has no effect without --core=lstm, gru or lru.',
    '--forget_bias has no effect without --core=lstm or gru.',
    '--rmsprop_eps has no effect without --optimizer=rmsprop.',
  ]
  assert warned(eval_envs=0, eval_share=0.5) == ['--eval_share has no effect with --eval_envs=0.']
  assert warned('muzero', puct_c1=1.0, max_considered_actions=2) == [
    '--puct_c1 has no effect without --search=puct.'
  ]
  assert warned('sac', clip_reward_input=False) == [
    '--clip_reward_input has no effect without --core=lstm, gru or lru.'
  ]
  assert warned('muzero', model='mlp', model_blocks=2, head_channels=4) == [
    '--head_channels has no effect without --model=auto, conv or residual.',
    '--model_blocks has no effect without --model=auto, conv or residual.',
  ]
  assert warned('intrinsic_rewards', inner_reward='extrinsic', reward_memory='none') == [
    '--reward_memory has no effect without --inner_reward=learned.'
  ]
  assert warned('intrinsic_rewards', count_bonus=1.0) == [
    '--count_bonus has no effect without --inner_reward=count.'
  ]


def test_options_with_effect_are_not():
  assert warned(core='lstm', core_size=7, eval_episodes=3, checkpoints_kept=2) == []
  assert warned('r2d2', core_size=7, clip_reward_input=False) == []
  assert warned(agent='pqn', adam_eps=1e-3, adam_b1=0.8) == []
  assert warned('muzero', model='mlp', mlp_sizes=['7'], hidden_state_size=8) == []
  assert warned('intrinsic_rewards', reward_sees_extrinsic=True) == []
  assert warned(core='gru', core_size=7, forget_bias=3.0) == []
  assert warned(core='lru', core_size=7, forget_bias=3.0) == [
    '--forget_bias has no effect without --core=lstm or gru.'
  ]
  assert warned('muzero', search='puct', puct_c1=1.0, dirichlet_alpha=0.5) == []
