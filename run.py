"""The command line: python run.py [COMMAND] [flags], where `--help` lists the commands."""

import sys

try:
    if sys.version_info < (3, 11):  # noqa: UP036
        raise ImportError('it needs 3.11 or later')
    from transformer.cli.main import main
except ImportError as error:
    if (error.name or '').startswith('transformer'):
        raise
    problem = f'Python {sys.version.split()[0]} of {sys.prefix} cannot run this: {error}'
    print(f'error: {problem}; use .venv/bin/python run.py (make run makes .venv)', file=sys.stderr)
    sys.exit(2)
except KeyboardInterrupt:
    sys.exit(130)

if __name__ == '__main__':
    sys.exit(main(sys.argv))
