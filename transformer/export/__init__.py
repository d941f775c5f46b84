"""Models that arrive from other programs: their names for parameters, options and pieces, in ours."""
