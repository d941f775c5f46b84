"""Names the command that installs an extra, of the checkout or of the installed distribution."""

import contextlib
import os
import pathlib
from collections.abc import Iterator

from transformer.errors import ConfigError

# The distribution's name in pyproject.toml.
_DISTRIBUTION = 'transformer'


def install(extra: str) -> str:
    """Returns the command that installs an extra, such as `pip install '.[export]'`.

    In another folder, the checkout's path replaces the dot. Without a checkout, the command names the
    distribution: it is installed already, so pip only adds the packages of the extra.
    """
    checkout = pathlib.Path(__file__).parents[2]
    if not (checkout / 'pyproject.toml').exists():
        return f"pip install '{_DISTRIBUTION}[{extra}]'"
    place = '.' if os.path.samefile(checkout, os.curdir) else checkout
    return f"pip install '{place}[{extra}]'"


@contextlib.contextmanager
def needing(user: str, extra: str) -> Iterator[None]:
    """Raises ConfigError where its block imports a package that is missing.

    Args:
      user: what needs the package, for the error's line.
      extra: the extra that has the package.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or '').partition('.')[0] == __package__.partition('.')[0]:
            raise  # a module of ours, which no package brings
        raise ConfigError(f'{user} needs {error.name}: {install(extra)}') from None
