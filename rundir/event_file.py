"""TensorBoard event files, written without TensorFlow and without a writer thread."""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Mapping

from tensorboardX.proto import event_pb2, summary_pb2
from tensorboardX.record_writer import masked_crc32c

from rundir.appending import AppendedFile


class EventFile:
  """Writes a new event file in a directory. Each event is written atomically."""

  def __init__(self, directory: str, name: str = ''):
    """Creates the directory and the file.

    Args:
      directory: of the file.
      name: of the file, with 'tfevents' in it; by default from the time, machine and process.

    Raises:
      OSError: if it cannot be written.
    """
    os.makedirs(directory, exist_ok=True)
    name = name or f'events.out.tfevents.{time.time():.0f}.{socket.gethostname()}.{os.getpid()}'
    self._file = AppendedFile(os.path.join(directory, name))
    try:
      if not self._file.size:
        self._append(event_pb2.Event(wall_time=time.time(), file_version='brain.Event:2'))
    except OSError:
      self._file.close()
      raise

  def write(self, step: int, values: Mapping[str, float]) -> None:
    """Writes scalars of one step.

    Args:
      step: their position on the time axis.
      values: by tag.

    Raises:
      OSError: if the disk is full.
    """
    value = summary_pb2.Summary.Value
    summary = summary_pb2.Summary(value=[value(tag=t, simple_value=v) for t, v in values.items()])
    self._append(event_pb2.Event(wall_time=time.time(), step=step, summary=summary))

  def write_gif(self, step: int, tag: str, gif: bytes) -> None:
    """Writes a GIF, which TensorBoard shows among its images.

    Args:
      step: its position on the time axis.
      tag: its name.
      gif: the content of the file.

    Raises:
      OSError: if the disk is full.
    """
    width, height = struct.unpack('<HH', gif[6:10])  # Of the header.
    image = summary_pb2.Summary.Image(
      height=height, width=width, colorspace=3, encoded_image_string=gif
    )
    summary = summary_pb2.Summary(value=[summary_pb2.Summary.Value(tag=tag, image=image)])
    self._append(event_pb2.Event(wall_time=time.time(), step=step, summary=summary))

  def close(self) -> None:
    """Closes the file."""
    self._file.close()

  def _append(self, event: event_pb2.Event) -> None:
    content = event.SerializeToString()
    length = struct.pack('<Q', len(content))
    checks = (struct.pack('<I', masked_crc32c(part)) for part in (length, content))
    self._file.append(length + next(checks) + content + next(checks))
