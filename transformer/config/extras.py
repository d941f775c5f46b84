"""Names the command that installs an extra, of the checkout or of the installed distribution."""

import os
import pathlib

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
    place = '.' if checkout == pathlib.Path(os.getcwd()).resolve() else checkout
    return f"pip install '{place}[{extra}]'"
