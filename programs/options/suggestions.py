"""Which flag is meant by a name that is not one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from absl import flags

from environments import errors

# Names of other libraries, and their abbreviations. What has the same words needs no entry.
_ELSEWHERE = {
  'algo': 'agent',
  'bs': 'batch_size',
  'buffer_size': 'replay_size',
  'dir': 'run_dir',
  'ent_coef': 'entropy_cost',
  'env_id': 'env',
  'gamma': 'discount',
  'lambda': 'gae_lambda',
  'logdir': 'run_dir',
  'lr': 'learning_rate',
  'lstm_size': 'core_size',  # Of earlier versions.
  'timesteps': 'num_steps',
  'total_timesteps': 'num_steps',
  'vf_coef': 'baseline_cost',
}
_LIBRARIES = ('absl', 'acme', 'launchpad')


def flags_of_ours() -> Iterator[flags.Flag]:
  """Yields the flags of this repository, and Launchpad's that it documents."""
  for module, defined in flags.FLAGS.flags_by_module_dict().items():
    for flag in defined:
      if module.partition('.')[0] not in _LIBRARIES or flag.name == 'lp_launch_type':
        yield flag


def did_you_mean(name: str, dashes: str = '', others: Iterable[str] = ()) -> str:
  """Returns '; did you mean X?' for the flag that is meant by a name, or ''.

  Args:
    name: what was given, without dashes.
    dashes: in front of the flag in the answer.
    others: flags of other programs, which are meant if none of this command's is.
  """
  own = [flag.name for flag in flags_of_ours()]
  known = list(dict.fromkeys([*own, *others]))
  name = name.lower().replace('-', '_')
  meant = _ELSEWHERE.get(name, '')
  if meant not in known:
    meant = next((flag for flag in known if _abbreviates(name, flag)), '')
  if not meant:
    dashed = [f'{dashes}{flag}' for flag in own]
    if found := errors.did_you_mean(f'{dashes}{name}', dashed):
      return found
    return errors.did_you_mean(f'{dashes}{name}', [f'{dashes}{flag}' for flag in known])
  return f'; did you mean {dashes}{meant}?'


def _abbreviates(name: str, flag: str) -> bool:
  """Returns whether each word of a name begins the same word of a flag, as in max_grad_norm."""
  words = [*zip(name.split('_'), flag.split('_'), strict=False)]
  return (
    len(words) > 1
    and name.count('_') == flag.count('_')
    and all(word and whole.startswith(word) for word, whole in words)
  )
