"""Reverb's own client, run by the replay node's Python; what it prints is JSON."""

import json
import random
import sys

import numpy as np

from nodes.replay_server import library

# Of bytes that snappy shrinks, and of others.
ROWS = [
  np.frombuffer(random.Random(0).randbytes(size) + bytes(zeros), np.uint8)
  for size, zeros in ((1, 0), (60, 0), (61, 0), (300, 0), (70_000, 0), (9, 5000), (0, 3_000_000))
]
STEPS = [
  (np.float32(i / 3), np.arange(6, dtype=np.int32).reshape(2, 3) * (7 - i), np.uint8(250 * i % 256))
  for i in range(7)
]


def insert_rows(client):
  """Inserts an item of each row, with its number and a half as the priority."""
  for number, row in enumerate(ROWS):
    writer = client.NewTrajectoryWriter(reverb.ConstantChunkerOptions(1, 1), False)
    writer.CreateItem('prioritized', number + 0.5, [writer.Append([row])], [True])
    writer.Flush(0, 60_000)


def insert_steps(client):
  """Inserts an item of all steps, in chunks of 3, as differences."""
  writer = client.NewWriter(3, 7, True, 1)
  for step in STEPS:
    writer.Append(list(step))
  writer.CreateItem('prioritized', 7, 1.0)
  writer.Flush()


def sample(client):
  """Prints the key, priority, probability, table_size and bytes of 200 samples."""
  sampler = client.NewSampler('prioritized', 200, 20)
  for _ in range(200):
    key, probability, size, priority, _, row = sampler.GetNextTrajectory()
    found = [int(key), float(priority), float(probability), int(size), row.tobytes().hex()[:2000]]
    print(json.dumps(found))


if __name__ == '__main__':
  reverb = library.load()
  {'rows': insert_rows, 'steps': insert_steps, 'sample': sample}[sys.argv[2]](
    reverb.Client(sys.argv[1])
  )
