"""Progress bars on standard error, drawn only on a terminal."""

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Column


def make_bar(label: str, *columns: ProgressColumn, quiet: bool = False, **options) -> Progress:
    """Makes a bar with a label, a count, further columns and the time that is left.

    Args:
      quiet: whether to print nothing.
      options: for rich's `Progress`. With `expand` the bar is as wide as the terminal.
    """
    console = Console(stderr=True, quiet=quiet)
    return Progress(
        TextColumn(label),
        MofNCompleteColumn(table_column=Column(no_wrap=True)),
        BarColumn(bar_width=None if options.get('expand') else 40),
        *columns,
        TimeRemainingColumn(elapsed_when_finished=True, table_column=Column(no_wrap=True)),
        console=console,
        disable=not (console.is_terminal and not quiet),
        **options,
    )


def print_line(bar: Progress, line: str) -> None:
    """Prints a line to the console of a bar."""
    bar.console.print(line, highlight=False, markup=False, soft_wrap=True)
