"""The command line: python run.py [COMMAND] [flags]; `--help` lists the commands."""

import sys

from transformer.cli.main import main

if __name__ == '__main__':
    sys.exit(main(sys.argv))
