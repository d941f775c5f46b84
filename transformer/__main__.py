"""python -m transformer: the command line of run.py."""

import sys

from transformer.cli.main import main

if __name__ == '__main__':
    sys.exit(main(['transformer', *sys.argv[1:]]))
