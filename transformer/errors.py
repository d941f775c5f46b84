"""ConfigError: a mistake of the user, not of the program."""


class ConfigError(ValueError):
    """A user's mistake, reported in one line that names the option or file, its value and the choices."""
