"""Tables as data: their rows, the scales that they run at, and tables in files of the user's own."""

from experiments.tables.rows import Measure, Row, Table

__all__ = ['Measure', 'Row', 'Table']
