"""Tables as data: their rows, the scales at which they run, and tables in a user's own files."""

from experiments.tables.table import Measure, Row, Table

__all__ = ['Measure', 'Row', 'Table']
