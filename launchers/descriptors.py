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
      opened = os.open(os.devnull, os.O_RDWR)
      os.dup2(opened, descriptor)  # Of equal numbers, the descriptor becomes inheritable.
      os.set_inheritable(descriptor, True)
      if opened != descriptor:
        os.close(opened)
