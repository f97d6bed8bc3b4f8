"""Plays Kubernetes for a JobSet: its pods are processes of this machine.

It does what the kubelet, the Job controller and the JobSet controller do with the fields of our
manifests, but replaces a failed pod without a pause. It fails if a manifest has another policy.
"""

import os
import random
import re
import shutil
import socket
import subprocess
import sys
import time

from launchers.k8s.pod import INDEX_VARIABLE
from tests.launchers.k8s import confined
from tests.waiting import wait_until

PROBES = ('startupProbe', 'livenessProbe')


# Linux gives outgoing connections the ports above, so that none takes one of these meanwhile.
_PORTS = range(10_000, 32_000)


def first_free_port(count):
  """Returns the first of `count` ports in a row on which nothing listens."""
  while True:
    first = random.SystemRandom().choice(_PORTS)
    try:
      for port in range(first, first + count):
        with socket.socket(socket.AF_INET6) as probe:
          probe.bind(('', port))
      return first
    except OSError:
      continue


class SmallCluster:
  """Runs one JobSet.

  Attributes:
    pods: the pod of each node, by name, such as 'inference-learner/0'.
    succeeded: whether the JobSet has; None while it runs.
    events: what happened to the pods, one sentence each.
  """

  def __init__(self, jobset, secret, directory, confine=False, grace=None):
    """Starts the pods.

    Args:
      jobset: the manifest.
      secret: the Secret that its pods mount.
      directory: an existing directory; gets the pods' volumes, and their logs in `logs/`.
      confine: whether the pods have the rights and the file system that their manifests say; their
        volumes are then below /mnt.
      grace: seconds between SIGTERM and SIGKILL; None for those of the manifest.
    """
    spec = jobset['spec']
    self._policy = spec['failurePolicy']
    self._attempt = self._counted = 0  # Restarts of the JobSet, and those of them that are limited.
    assert spec['successPolicy']['operator'] == 'All'
    self._jobs = {job['name']: job['template']['spec'] for job in spec['replicatedJobs']}
    self._targets = spec['successPolicy'].get('targetReplicatedJobs', [*self._jobs])
    self.succeeded = None
    self.events = []
    (directory / 'logs').mkdir(exist_ok=True)
    self.pods = {
      f'{name}/{index}': Pod(
        name, index, job['template']['spec'], secret, directory, confine, grace
      )
      for name, job in self._jobs.items()
      for index in range(job['completions'])
    }

  def step(self):
    """Looks at each pod once."""
    for name, pod in self.pods.items():
      if not pod.handled:
        self.events += [f'{name}: {event}' for event in pod.step()]
        if pod.exit_code is not None:
          pod.handled = True
          self._ended(name, pod)
    if self.succeeded is None:
      ended = [p.exit_code for p in self.pods.values() if p.job in self._targets]
      self.succeeded = True if all(code == 0 for code in ended) else None

  def _ended(self, name, pod):
    if pod.exit_code == 0 or self.succeeded is not None:
      return
    self.events.append(f'{name}: exited with code {pod.exit_code}')
    job = self._jobs[pod.job]
    pod.failures += 1
    if 'podFailurePolicy' in job:
      hopeless, evicted = job['podFailurePolicy']['rules']
      assert hopeless['action'] == 'FailJob' and evicted['onPodConditions']
      if pod.exit_code in hopeless['onExitCodes']['values']:
        message = f'failed with exit code {pod.exit_code} matching FailJob rule at index 0'
        self._job_failed(pod.job, 'PodFailurePolicy', f'Container node for pod {name} {message}')
        return
    if pod.failures <= job.get('backoffLimitPerIndex', 0):
      pod.start()
      self.events.append(f'{name}: replaced')
    elif 'backoffLimitPerIndex' in job:
      assert job['maxFailedIndexes'] == 0
      self._job_failed(pod.job, 'MaxFailedIndexesExceeded', 'Job has exceeded the number')
    else:
      assert job['backoffLimit'] == 0
      self._job_failed(pod.job, 'BackoffLimitExceeded', 'Job has reached its backoff limit')

  def _job_failed(self, job, reason, message):
    """Does what the first rule that matches says."""
    action = 'RestartJobSet'
    for rule in self._policy.get('rules', ()):
      if (
        job in rule.get('targetReplicatedJobs', [job])
        and reason in rule.get('onJobFailureReasons', [reason])
        and any(re.search(p, message) for p in rule.get('onJobFailureMessagePatterns', ['']))
      ):
        action = rule['action']
        break
    self._counted += action == 'RestartJobSet'
    if action == 'FailJobSet' or self._counted > self._policy['maxRestarts']:
      self.succeeded = False
      return
    self._attempt += 1
    self._end(self.pods.values())
    for pod in self.pods.values():
      pod.attempt, pod.failures = self._attempt, 0
      pod.start()
    self.events.append('the JobSet has restarted')

  def run_until(self, condition, deadline):
    """Runs the pods until `condition()`, for at most `deadline` seconds."""
    wait_until(condition, self.step, deadline, poll=0.05, explain=lambda: self.events)

  def run(self, deadline):
    """Runs the JobSet to its end; returns whether it has succeeded."""
    try:
      self.run_until(lambda: self.succeeded is not None, deadline)
    finally:
      self.delete()
    return self.succeeded

  def delete(self):
    """Ends all pods that are left."""
    self._end(self.pods.values())
    for pod in self.pods.values():
      pod.unmount_secret()

  def _end(self, pods):
    left = [pod for pod in pods if pod.exit_code is None]
    for pod in left:
      pod.end()
    while any(pod.exit_code is None for pod in left):
      for pod in left:
        pod.step()
      time.sleep(0.05)


class Pod:
  """The pod of one node; its successors take its place.

  Attributes:
    job: name of the replicated job.
    exit_code: as the status of a container has it, 137 after SIGKILL; None while it runs.
    failures: how many earlier pods have failed, since the JobSet has restarted.
    attempt: how often it has.
    handled: whether the cluster knows that it has ended.
    log: the path of its output.
  """

  def __init__(self, job, index, spec, secret, directory, confine, grace):
    assert spec['restartPolicy'] == 'Never'
    self.job, self._index, self._spec = job, index, spec
    (self._container,) = spec['containers']
    self._secret, self._directory, self._confine = secret, directory, confine
    self._grace = spec['terminationGracePeriodSeconds'] if grace is None else grace
    self.log = directory / 'logs' / f'{job}-{index}.log'
    self.failures = self.attempt = 0
    self.start()

  @property
  def pid(self):
    """The id of its process."""
    return self._process.pid

  def start(self):
    """Starts a pod, with volumes of its own unless they are claimed."""
    self.exit_code, self.handled, self._kill_at = None, False, None
    claims = {v['name']: v.get('persistentVolumeClaim') for v in self._spec['volumes']}
    self._volumes = {}
    for mount in self._container['volumeMounts']:
      name = mount['name']
      own = f'{self.job}-{self._index}-{self.attempt}-{self.failures}-{name}'
      host = self._directory / (claims[name]['claimName'] if claims[name] else own)
      host.mkdir(exist_ok=True)
      self._volumes[mount['mountPath']] = host
    self._mount_secret()
    self._probes = [self._container[p] for p in PROBES if p in self._container]
    self._failures_in_a_row = 0
    self._due = time.monotonic()
    with open(self.log, 'a') as log:
      self._process = subprocess.Popen(
        **self._inside(self._container['command']), stdout=log, stderr=subprocess.STDOUT
      )

  def _mount_secret(self):
    """Writes the files of the Secret, which the user of a pod here owns: it is not root's."""
    (self._mounted,) = (v for v in self._spec['volumes'] if 'secret' in v)
    assert self._mounted['secret']['secretName'] == self._secret['metadata']['name']
    (path,) = (
      host
      for mount, host in zip(self._container['volumeMounts'], self._volumes.values(), strict=True)
      if mount['name'] == self._mounted['name']
    )
    self._secrets = []
    for name, text in self._secret['stringData'].items():
      (path / name).unlink(missing_ok=True)
      (path / name).write_text(text)
      (path / name).chmod(self._mounted['secret']['defaultMode'])
      if self._confine:
        shutil.chown(path / name, self._spec['securityContext']['runAsUser'])
      self._secrets.append(path / name)

  def unmount_secret(self):
    """Removes what the pod had of the Secret."""
    for path in self._secrets:
      path.unlink()

  def _inside(self, command):
    """Returns the arguments with which `subprocess` runs a command in the container."""
    counts = {'job-index-failure-count': self.failures, 'job-index-ignored-failure-count': 0}
    fields = {f"metadata.annotations['batch.kubernetes.io/{k}']": str(v) for k, v in counts.items()}
    fields["metadata.labels['jobset.sigs.k8s.io/restart-attempt']"] = str(self.attempt)
    environment = {**os.environ, INDEX_VARIABLE: str(self._index)}
    for variable in self._container['env']:
      if 'value' in variable:
        environment[variable['name']] = self._seen(variable['value'])
      else:
        environment[variable['name']] = fields[variable['valueFrom']['fieldRef']['fieldPath']]
    words = [self._seen(word) for word in command]
    words = [sys.executable, *words[1:]] if words[0] == 'python' else words
    volumes = {path: host for path, host in self._volumes.items() if path != confined.TEMPORARY}
    prefix = confined.command(self._spec, volumes) if self._confine else []
    return {
      'args': [*prefix, *words],
      'cwd': confined.ROOT,
      'env': environment,
      'stdin': subprocess.DEVNULL,
    }

  def _seen(self, text):
    """Returns a text of the manifest with the paths that the volumes have on this machine."""
    text = text.replace('$$', '$')
    for path, host in self._volumes.items():
      if path != confined.TEMPORARY:
        here = confined.inside(path) if self._confine else str(host)
        text = re.sub(rf'(^|=){path}/', lambda found, here=here: f'{found[1]}{here}/', text)
    return text

  def step(self):
    """Looks at the process and its probe; returns what happened to it."""
    code = self._process.poll()
    if code is not None:
      self.exit_code = code if code >= 0 else 128 - code
    elif self._kill_at is not None:
      if time.monotonic() >= self._kill_at:
        self._process.kill()
    elif self._probes and time.monotonic() >= self._due:
      return self._check()
    return []

  def _check(self):
    probe = self._probes[0]
    self._due = time.monotonic() + probe['periodSeconds']
    said = self.probe(probe)
    if said is None:
      self._probes = [self._container['livenessProbe']]
      self._failures_in_a_row = 0
      return []
    self._failures_in_a_row += 1
    events = [f'probe failed: {said}']
    if self._failures_in_a_row == probe['failureThreshold']:
      self.end()
      events.append('killed')
    return events

  def probe(self, probe):
    """Runs the command of a probe in the container; returns what it says, None if it succeeds."""
    inside = self._inside(probe['exec']['command'])
    try:
      done = subprocess.run(
        **inside,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=probe['timeoutSeconds'],
      )
    except subprocess.TimeoutExpired:
      return 'timeout'
    return done.stdout.strip() if done.returncode else None

  def end(self):
    """Has the process end, as when the pod is deleted."""
    self._process.terminate()
    self._kill_at = time.monotonic() + self._grace
