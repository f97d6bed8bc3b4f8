"""A run and its groups, for tests of what Kubernetes gets."""

from launchers.k8s.container import Group, Run
from launchers.placement import Resources

RUN = Run(
  'lp-demo',
  'registry/image:1',
  ['python', 'launch.py'],
  volume='runs',
  token='0badcafe',
  node_timeout=300.0,
)
MONITOR = Group('monitor', 1, Resources(cpus=0, with_launcher=True), [8900])
TPU = Resources(accelerator='tpu-v6e', topology='2x4', num_devices=8, cpus=8, memory_gb=1.5)
GROUPS = [
  MONITOR,
  Group('inference_learner', 1, TPU, [8901]),
  Group(
    'actor',
    3,
    Resources(
      labels={'pool': 'cpu'},
      uses_run_dir=False,
      env={'COLOUR': 'green'},
      restart='on_failure',
      max_restarts=7,
    ),
  ),
  Group('scorer', 1, Resources(accelerator='gpu', resources={'example.com/disk': 2})),
]


def pod_of(job):
  return job['spec']['template']['spec']
