"""Names the command that installs an extra: from the checkout, or of the installed distribution."""

import os
import pathlib

# Of the distribution, as pyproject.toml names it.
_DISTRIBUTION = 'transformer'


def install(extra: str) -> str:
    """Returns the command that installs an extra, such as `pip install '.[export]'`.

    From elsewhere the checkout's path stands in place of the dot. Without a checkout, the distribution is
    named: it is installed already, so pip only adds what the extra needs.
    """
    checkout = pathlib.Path(__file__).parents[2]
    if not (checkout / 'pyproject.toml').exists():
        return f"pip install '{_DISTRIBUTION}[{extra}]'"
    place = '.' if checkout == pathlib.Path(os.getcwd()).resolve() else checkout
    return f"pip install '{place}[{extra}]'"
