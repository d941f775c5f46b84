"""Errors of the user, not of the program."""

import contextlib
from collections.abc import Iterator


class ConfigError(ValueError):
    """A user's mistake, reported in one line that names the option or file, its value and the choices."""


@contextlib.contextmanager
def errors_in(name: object) -> Iterator[None]:
    """Begins the message of a ConfigError that its block raises with a name, such as a file's."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f'{name}: {error}') from None
