"""The rows of the records beside it, which real runs have made."""

from benchmarks.results.declared import Group, Launch, Peer, Published, Task

CONFIG = {
  'LR': 5e-3,
  'NUM_ENVS': 64,
  'NUM_STEPS': 128,
  'UPDATE_EPOCHS': 4,
  'NUM_MINIBATCHES': 8,
  'GAMMA': 0.99,
  'GAE_LAMBDA': 0.95,
  'CLIP_EPS': 0.2,
  'ENT_COEF': 0.01,
  'VF_COEF': 0.5,
  'MAX_GRAD_NORM': 0.5,
  'ACTIVATION': 'relu',
  'ANNEAL_LR': True,
}
GROUPS = (Group(name='minatar', title='MinAtar', about='Games.'),)
TASKS = (
  Task(
    name='catch',
    title='Catch',
    about='A small game.',
    rows=(
      Launch(
        label='anakin', program='anakin', env='catch', budget=200_000, flags=('--preset=none',)
      ),
      Launch(label='r2d2', program='r2d2', env='catch', budget=100_000),
    ),
    thresholds=(0.95, 2.0),
    published=(
      Published(system='Somebody', figure='0.9 ± 0.1', protocol='10 episodes', source='a paper'),
    ),
    missed='`r2d2`, for want of time.',
  ),
  Task(
    name='minatar/breakout',
    title='Breakout',
    about='A game of MinAtar.',
    rows=(
      Peer(
        label='purejaxrl',
        peer='purejaxrl',
        env='gymnax:Breakout-MinAtar',
        budget=200_000,
        seeds=(1,),
        given={'config': CONFIG},
      ),
    ),
    thresholds=(5.0,),
    scale=(0.0, 28.0),
  ),
  Task(
    name='minatar/freeway',
    title='Freeway',
    about='Another.',
    rows=(Launch(label='sebulba', program='sebulba', env='minatar:Freeway', budget=1_000),),
    scale=(0.0, 58.0),
  ),
)
