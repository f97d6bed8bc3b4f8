"""Draws observations as captioned pictures, and writes them to a GIF file."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import IO, Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from environments import nests
from environments.nests import Nest

_SIZE = 320  # Approximate pixels of the longer side.
_CAPTION = 40
_MILLISECONDS = 80
_LAST_MILLISECONDS = 1000
# Okabe and Ito's colours, for the channels of observations that have not 1 or 3 channels.
_CHANNELS = np.array(
  [
    [86, 180, 233],
    [230, 159, 0],
    [0, 158, 115],
    [240, 228, 66],
    [213, 94, 0],
    [204, 121, 167],
    [0, 114, 178],
    [255, 255, 255],
  ],
  np.float32,
)


def is_picture(observation: np.ndarray) -> bool:
  """Returns whether an observation has the shape of a picture: two sides and optional channels."""
  shape = observation.shape
  return len(shape) in (2, 3) and min(shape[:2]) > 1


def drawn_part(observation: Nest) -> np.ndarray:
  """Returns what is drawn of observations `[N, ...]`: an array, or a part of a nest.

  That is the largest picture of the nest, else all its numbers but an action mask, float32 `[N, D]`.
  """
  if isinstance(observation, np.ndarray):
    return observation
  leaves = nests.leaves(nests.without_mask(observation))
  if pictures := [leaf for leaf in leaves if is_picture(leaf[0])]:
    return max(pictures, key=lambda leaf: leaf[0].size)
  return np.concatenate([leaf.reshape(len(leaf), -1) for leaf in leaves], 1).astype(np.float32)


def draw(observation: np.ndarray, low: float, high: float) -> Image.Image:
  """Draws an observation.

  Args:
    observation: `[height, width]` is drawn in gray; `[height, width, channels]` in gray for 1 channel,
      RGB for 3, and one colour per channel otherwise; other shapes as bars.
    low: the value drawn black, or below every bar.
    high: the value drawn white.
  """
  numbers = np.nan_to_num(observation.astype(np.float32), posinf=high, neginf=low)
  scaled = np.clip((numbers - low) / max(high - low, 1e-6), 0, 1)
  if is_picture(observation):
    return _enlarge(Image.fromarray(_colours(scaled)), Image.Resampling.NEAREST)
  return _bars(scaled.ravel(), np.clip(-low / max(high - low, 1e-6), 0, 1))


def shrink(picture: np.ndarray) -> Image.Image:
  """Returns uint8 `[height, width, 3]` as a picture, reduced to the size of drawn observations."""
  small = Image.fromarray(picture)
  small.thumbnail((_SIZE, _SIZE))
  return small


def caption(picture: Image.Image, lines: Sequence[str]) -> Image.Image:
  """Returns a picture with two lines of text below it."""
  width = max(picture.width, 220)
  whole = Image.new('RGB', (width, picture.height + _CAPTION), 'black')
  whole.paste(picture, ((width - picture.width) // 2, 0))
  pen, font = ImageDraw.Draw(whole), ImageFont.load_default(13)
  for i, line in enumerate(lines):
    pen.text((6, picture.height + 3 + 17 * i), line, fill='white', font=font)
  return whole


def save(path: str | IO[bytes], frames: Iterable[Image.Image], ends: Sequence[bool]) -> None:
  """Writes a GIF that loops.

  Args:
    path: path of the file, or an open file.
    frames: at least one frame, all of one size. Consecutive frames must differ: Pillow merges equal
      ones.
    ends: for each frame, whether it is the last of an episode; such frames are shown for longer.
  """
  durations = [_LAST_MILLISECONDS if end else _MILLISECONDS for end in ends]
  first, *rest = (frame.quantize(64) for frame in frames)
  options: dict[str, Any] = {'duration': durations, 'loop': 0, 'disposal': 1}
  first.save(path, format='GIF', save_all=True, append_images=rest, **options)


def _colours(scaled: np.ndarray) -> np.ndarray:
  """Returns uint8 `[height, width, 3]` of values in [0, 1]."""
  if scaled.ndim == 2 or scaled.shape[2] == 1:
    gray = scaled if scaled.ndim == 2 else scaled[:, :, 0]
    return (255 * np.repeat(gray[:, :, None], 3, axis=2)).astype(np.uint8)
  if scaled.shape[2] == 3:
    return (255 * scaled).astype(np.uint8)
  picture = np.zeros((*scaled.shape[:2], 3), np.float32)
  for channel in range(scaled.shape[2]):  # Later channels cover earlier ones.
    weight = scaled[:, :, channel, None]
    picture = picture * (1 - weight) + weight * _CHANNELS[channel % len(_CHANNELS)]
  return picture.astype(np.uint8)


def _enlarge(picture: Image.Image, how: Image.Resampling) -> Image.Image:
  factor = max(1, _SIZE // max(picture.size))
  return picture.resize((picture.width * factor, picture.height * factor), how)


def _bars(scaled: np.ndarray, zero: float) -> Image.Image:
  """Draws a bar from zero for each number in [0, 1]; averages numbers that share a column."""
  columns = np.array_split(scaled, min(len(scaled), _SIZE // 2))
  height, width = _SIZE // 2, max(2, _SIZE // len(columns))
  picture = Image.new('RGB', (width * len(columns), height))
  pen = ImageDraw.Draw(picture)
  base = round((1 - zero) * (height - 1))
  for i, column in enumerate(columns):
    top = round((1 - float(np.mean(column))) * (height - 1))
    right = i * width + max(0, width - 1 - math.ceil(width / 8))
    pen.rectangle((i * width, min(top, base), right, max(top, base)), fill=(86, 180, 233))
  pen.line((0, base, picture.width, base), fill=(120, 120, 120))
  return picture
