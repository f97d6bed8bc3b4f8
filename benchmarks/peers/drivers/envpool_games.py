"""The common settings of Atari games as options of envpool."""

from __future__ import annotations

from typing import Any


def options(game: dict[str, Any]) -> dict[str, Any]:
  """Returns the options that `envpool.make` takes for a game's settings; rewards are clipped."""
  return {
    'episodic_life': game['life_loss_terminates'],
    'reward_clip': True,
    'repeat_action_probability': game['sticky_actions'],
    'full_action_space': game['full_action_space'],
    'noop_max': max(1, game['noop_max']),
    'use_fire_reset': game['fire_reset'],
    'frame_skip': game['action_repeat'],
    'max_episode_steps': game['frame_cap'] // game['action_repeat'],
  }
