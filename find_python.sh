#!/bin/sh
# Prints the path of a Python 3.10 that Reverb can run in, or with --libdir the directory of its
# libpython3.10.so. Says in one sentence what is missing if there is none. With --newest it prints the
# path of the newest Python here, which Launchpad need not run in.

libdir() {
  "$1" -c 'import sysconfig; print(sysconfig.get_config_var("LIBDIR"))'
}

usable() {
  "$1" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 10))' 2>/dev/null || return 1
  # Reverb is linked against libpython by name, also where the interpreter itself is not.
  LD_LIBRARY_PATH="$(libdir "$1"):$LD_LIBRARY_PATH" \
    "$1" -c 'import ctypes; ctypes.CDLL("libpython3.10.so.1.0")' 2>/dev/null && return 0
  unshared=$1
  return 1
}

makes_environments() {
  "$1" -c 'import ensurepip, venv' 2>/dev/null && return 0
  bare=$1
  return 1
}

cd "$(dirname "$0")" || exit 1
if [ "$1" = --newest ]; then
  for python in /usr/bin/python3 /usr/bin/python3.?? /usr/local/bin/python3.?? \
      "$HOME"/.pyenv/versions/3.*/bin/python "$HOME"/.local/share/uv/python/*/bin/python3; do
    "$python" -c 'import sys, venv; print(*sys.version_info[:3], sys.executable)' 2>/dev/null
  done | sort -k1,1n -k2,2n -k3,3n | tail -n 1 | cut -d ' ' -f 4- | grep .
  exit
fi
for python in .venv/bin/python "$(command -v python3.10)" \
    "$(command -v uv >/dev/null && uv python find 3.10 2>/dev/null)" \
    "$HOME"/.pyenv/versions/3.10.*/bin/python "$(command -v python3)"; do
  if [ -n "$python" ] && usable "$python" && makes_environments "$python"; then
    [ "$1" = --libdir ] && libdir "$python" || echo "$python"
    exit 0
  fi
done
if [ -n "$bare" ]; then
  echo "error: $bare comes without the modules venv and ensurepip; install them, on Debian and Ubuntu with" \
    "'apt-get install python3.10-venv'." >&2
elif [ -n "$unshared" ]; then
  echo "error: $unshared comes without libpython3.10.so, which Reverb needs; install one that has" \
    "it with 'PYTHON_CONFIGURE_OPTS=--enable-shared pyenv install 3.10' or 'uv python install 3.10'." >&2
else
  echo "error: there is no Python 3.10 here, the only version that Launchpad, Reverb and JAX share;" \
    "install it with 'uv python install 3.10' or" \
    "'PYTHON_CONFIGURE_OPTS=--enable-shared pyenv install 3.10'." >&2
fi
exit 1
