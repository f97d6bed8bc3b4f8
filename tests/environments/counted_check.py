"""A check that counts its runs: `python -m tests.environments.counted_check FILE` prints the count."""

import pathlib
import sys

if __name__ == '__main__':
  file = pathlib.Path(sys.argv[1])
  with file.open('a') as f:
    f.write('run\n')
  print(len(file.read_text().splitlines()))
