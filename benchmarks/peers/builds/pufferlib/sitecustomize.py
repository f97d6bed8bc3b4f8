"""Makes PufferLib's setup.py build its training only, for CPUs and without its own games.

Python imports this at its start where this directory is on PYTHONPATH. The games need further downloads,
and CUDA needs more than the compiler by which setup.py recognises it.
"""

import builtins
import functools
import os
import shutil

os.environ['NO_OCEAN'] = '1'
# What setup.py packages, but defines only with the games.
builtins.c_extension_paths = []  # type: ignore[attr-defined]


@functools.wraps(shutil.which)
def _which(command, *arguments, found=shutil.which, **named):  # type: ignore[no-untyped-def]
  return None if command == 'nvcc' else found(command, *arguments, **named)


shutil.which = _which  # type: ignore[assignment]
