"""The convolutions of our torsos, in PyTorch."""

from __future__ import annotations

from torch import Tensor, nn


class _Residual(nn.Module):
  """A residual block of IMPALA's deep network."""

  def __init__(self, channels: int):
    super().__init__()
    convolutions = [nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2)]
    self._layers = nn.Sequential(nn.ReLU(), convolutions[0], nn.ReLU(), convolutions[1])

  def forward(self, x: Tensor) -> Tensor:
    """Maps `[N, C, H, W]` to the same shape."""
    return x + self._layers(x)


def convolutions(torso: str, channels: int) -> nn.Sequential:
  """Returns the convolutions of our torso of that name."""
  layers: list[nn.Module] = []
  if torso == 'nature':
    for size, kernel, stride in ((32, 8, 4), (64, 4, 2), (64, 3, 1)):
      layers += [nn.Conv2d(channels, size, kernel, stride), nn.ReLU()]
      channels = size
  else:
    for size in (16, 32, 32):
      layers += [nn.Conv2d(channels, size, 3, padding=1), nn.MaxPool2d(3, 2, padding=1)]
      layers += [_Residual(size), _Residual(size)]
      channels = size
    layers.append(nn.ReLU())
  return nn.Sequential(*layers, nn.Flatten())
