"""The known differences between the systems. Printed with every result."""

from __future__ import annotations

from collections.abc import Iterable

from benchmarks.peers import best
from benchmarks.peers.settings import HALF_CHEETAH, Settings

_EVERYWHERE = {
  'sebulba': (
    'actors that wait for actions from one inference server; unrolls wait in a queue of Reverb',
    'resets, rows between episodes, are masked in the loss: counted in `learned`, not in steps',
  ),
  'impala': (
    'as sebulba, but actors act themselves, with parameters that they fetch every --update_period',
  ),
  'anakin': (
    'environments, acting and learning in one compiled function; an update learns from one unroll of '
    'every environment, whatever the batch size',
    'resets are rows, as in sebulba',
  ),
  'sample_factory': (
    "APPO: PPO's clipped objective and values, and normalised generalised advantages (lambda 0.95), "
    'where the others have V-trace, with which its release fails',
    'a truncated episode counts as terminated',
    'another initialisation of the network',
    'steps are counted as they are trained on (env_steps), as in its own rate',
  ),
  'rllib': (
    'another initialisation of the network',
    'steps are its num_env_steps_sampled_lifetime, `learned` num_env_steps_trained_lifetime',
    'a report comes once a second at most',
  ),
  'pufferlib': (
    "PPO's clipped objective and values on normalised advantages of its own (V-trace's clipped weights "
    'within generalised advantages, lambda 0.95)',
    'it draws unrolls by their advantages, with repetition: `learned` counts drawn ones as each once',
    'acting and learning take turns in one process',
    'rewards are clipped to [-1, 1]; a truncated episode counts as terminated',
    'another initialisation of the network; its dashboard is not drawn',
  ),
  'cleanrl': (
    "PPO's clipped objective, and normalised generalised advantages (lambda 0.95)",
    'acting and learning take turns in one process; environments step within XLA',
    "the step after an episode's end, which resets it, is counted, and learned from",
    'returns are means over the last episode of each environment, 0 before the first',
    'a truncated episode counts as terminated',
    'another initialisation of the network; its log for TensorBoard is not written',
  ),
  'stoix': (
    'RMSProp and losses that are sums over a batch, where the others have Adam and means',
    'actors are threads of one process; an update waits for one unroll of every environment',
    'a truncated episode counts as terminated',
    'steps are counted as they are trained on',
    'returns are those of the first actor only',
    'another initialisation of the network; its logs and evaluations are left out',
    "on XLA's older runtime for CPUs, which makes it twice as fast",
  ),
  'cleanba': (
    'always the deep residual network, so compare it with --torso=impala; another initialisation of it',
    'RMSProp and losses that are sums over a batch, where the others have Adam and means',
    'actors are threads of one process; an update waits for one unroll of every environment',
    "envpool's emulator: episodes start with one no-op; the step after an episode's end is counted",
    'returns are means over the last episode of each environment, 0 before the first',
  ),
}
_NORMALISED = "rewards are normalised, as in our preset for CartPole; no peer's are"
_CARTPOLE = {
  'sebulba': ("Gymnasium's vectorised CartPole", _NORMALISED),
  'impala': ("Gymnasium's vectorised CartPole", _NORMALISED),
  'anakin': ("gymnax's CartPole, in JAX, which no other system here plays", _NORMALISED),
  'sample_factory': ('one Gymnasium environment after the other in a worker',),
  'rllib': ("Gymnasium's vectorised CartPole",),
  'pufferlib': (
    "Gymnasium's vectorised CartPole as one environment of PufferLib with many agents",
    'one PyTorch thread, since more take longer for so small a network',
  ),
  'cleanrl': ("envpool's CartPole; an MLP takes the place of the script's convolutions",),
  'stoix': ("envpool's CartPole",),
}
_ATARI = {
  'sebulba': ("ale-py's compiled vector environment; frames are stacked in the network",),
  'impala': ("ale-py's compiled vector environment; frames are stacked in the network",),
  'sample_factory': ("ale-py's emulator behind Gymnasium's wrappers, which stack frames",),
  'rllib': (
    "ale-py's emulator behind Gymnasium's wrappers, which stack frames",
    "rewards are not clipped, which Pong's need not be",
  ),
  'cleanrl': (
    "envpool's emulator: episodes start with one no-op",
    'always 512 units after the convolutions; its loops are unrolled, since XLA computes convolutions '
    'within loops on CPUs more slowly',
  ),
  'stoix': ("envpool's emulator: episodes start with one no-op",),
  'pufferlib': (
    "ale-py's emulator behind Gymnasium's wrappers, which stack frames; one game after the other",
    "the step after an episode's end, which resets it, is counted, and learned from",
  ),
}
# Of `settings.HALF_CHEETAH`.
_HALF_CHEETAH = {
  'sebulba': ("Gymnasium's HalfCheetah-v5, one after the other in an actor",),
  'impala': ("Gymnasium's HalfCheetah-v5, one after the other in an actor",),
  'sample_factory': ('HalfCheetah-v4, one after the other in a worker',),
  'pufferlib': (
    'HalfCheetah-v4, one after the other; in processes, which wait actively, it is slower on two cores',
    'observations are not normalised',
    'one PyTorch thread, since more take longer for so small a network',
  ),
}


def lines(systems: Iterable[str], settings: Settings) -> list[str]:
  """Returns a line for each difference of the compared systems, with the system's name first."""
  by_env = {'cartpole': _CARTPOLE, HALF_CHEETAH: _HALF_CHEETAH}.get(settings.env, _ATARI)
  return [
    f'{name}: {text}'
    for name in systems
    for text in (best.lines(name) or (*_EVERYWHERE[name], *by_env.get(name, ())))
  ]
