"""Models of other programs, in both directions: their names for parameters, options and pieces."""
