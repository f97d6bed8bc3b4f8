"""Double precision, by the name that the installed JAX has for it."""

import jax

if hasattr(jax, 'enable_x64'):
  enable_x64 = jax.enable_x64
else:
  from jax.experimental import enable_x64

__all__ = ['enable_x64']
