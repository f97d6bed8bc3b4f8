"""The standard descriptors of this process. Imports nothing else, since launch.py begins with it."""

import os


def open_standard() -> None:
  """Opens the null device for stdin, stdout and stderr where they are closed.

  Otherwise the next file of this process would have one of their numbers, and every child would take it
  for its own input or output.
  """
  for descriptor in range(3):
    try:
      os.fstat(descriptor)
    except OSError:
      # The system gives the lowest free number, which is this one.
      os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
