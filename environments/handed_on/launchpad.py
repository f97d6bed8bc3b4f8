"""The package launchpad, of the launcher's environment."""

import shutil
import sys
import types
from typing import Any

from environments import interpreters

# Launchpad looks for terminals by distutils, which Python 3.12 has no more, and which takes longer to
# import than the rest of Launchpad.
_distutils: Any = types.ModuleType('distutils')
_distutils.spawn = types.ModuleType('distutils.spawn')
_distutils.spawn.find_executable = shutil.which
_before = {name: sys.modules.get(name) for name in ('distutils', 'distutils.spawn')}
sys.modules |= {'distutils': _distutils, 'distutils.spawn': _distutils.spawn}
interpreters.load_handed_on(__name__)
for _name, _module in _before.items():  # The environment may need the real one.
  if _module is None:
    del sys.modules[_name]
  else:
    sys.modules[_name] = _module
