"""A kernel matrix by MapReduce: workers compute its blocks, a reducer puts them together and classifies.

The kernel is that of a recurrent network of infinite width (Alemohammad et al. 2021, "The Recurrent
Neural Tangent Kernel"). It compares sequences; here the rows of 200 pictures, of which half are faces.
"""

import itertools

import launchpad as lp
import numpy as np


def kernel(x, y, recurrent=1.0, inputs=1.0, bias=1.0):
  """Returns the tangent kernel `[N, M]` of sequences `[N, T, D]` and `[M, T, D]`, for a ReLU network.

  The other arguments are the variances of the weights. The unit before the ReLU, and its gradient, have
  the covariances `unit` and `tangent` between two sequences. The gradient reaches the weights of all
  steps, but only steps at the same distance from the end contribute, since others are independent.
  """
  relu_x = relu_y = relu = slope = tangent = 0.0  # The first hidden state is 0.
  for step in range(x.shape[1]):
    now_x, now_y = x[:, step], y[:, step]
    norm_x = recurrent * relu_x + inputs * np.mean(now_x**2, axis=1) + bias
    norm_y = recurrent * relu_y + inputs * np.mean(now_y**2, axis=1) + bias
    unit = recurrent * relu + inputs * now_x @ now_y.T / x.shape[2] + bias
    tangent = unit + recurrent * slope * tangent
    # Means of the product of two ReLUs, and of two slopes, over Gaussian units. The ReLU has a factor of
    # sqrt(2), by which it keeps the variance.
    norm = np.sqrt(np.outer(norm_x, norm_y))
    angle = np.arccos(np.clip(unit / norm, -1.0, 1.0))
    relu = norm / np.pi * (np.sin(angle) + (np.pi - angle) * np.cos(angle))
    slope = (np.pi - angle) / np.pi
    relu_x, relu_y = norm_x, norm_y
  return relu + slope * tangent


def accuracy(matrix, labels, folds=5, ridge=0.01):
  """Returns the share of samples that ridge regression on the others classifies correctly."""
  right = 0
  for fold in range(folds):
    tested = np.arange(len(labels)) % folds == fold
    known = matrix[np.ix_(~tested, ~tested)]
    known = known + ridge * np.mean(np.diag(matrix)) * np.eye(len(known))
    weights = np.linalg.solve(known, labels[~tested])
    right += np.sum(np.sign(matrix[np.ix_(tested, ~tested)] @ weights) == labels[tested])
  return right / len(labels)


def gaussian(samples):
  """Returns the kernel matrix of Gaussians as wide as the median distance."""
  flat = samples.reshape(len(samples), -1)
  square = np.sum(flat**2, axis=1)
  distance = square[:, None] + square - 2 * flat @ flat.T
  return np.exp(-distance / np.median(distance))


class Worker:
  def block(self, x, y):
    return kernel(x, y)


class Reducer:
  def __init__(self, workers, size):
    self._workers, self._size = workers, size

  def run(self):
    from skimage import data

    samples = data.lfw_subset().astype(np.float64)
    samples = (samples - samples.mean()) / samples.std()
    labels = np.repeat([1.0, -1.0], len(samples) // 2)
    parts = [slice(i, i + self._size) for i in range(0, len(samples), self._size)]
    pairs = list(itertools.combinations_with_replacement(parts, 2))  # The matrix is symmetric.
    blocks = [
      worker.futures.block(samples[rows], samples[columns])
      for worker, (rows, columns) in zip(itertools.cycle(self._workers), pairs)
    ]
    matrix = np.empty((len(samples), len(samples)))
    for (rows, columns), block in zip(pairs, blocks, strict=True):
      matrix[rows, columns] = block.result()
      matrix[columns, rows] = matrix[rows, columns].T
    ours, others = accuracy(matrix, labels), accuracy(gaussian(samples), labels)
    print(f'{len(pairs)} blocks; accuracy {ours:.1%}, with a Gaussian kernel {others:.1%}')
    lp.stop()


def make_program(num_workers: int = 2, block_size: int = 50):
  program = lp.Program('kernel_matrix')
  with program.group('worker'):
    workers = [program.add_node(lp.CourierNode(Worker)) for _ in range(num_workers)]
  program.add_node(lp.PyClassNode(Reducer, workers, block_size), label='reducer')
  return program
