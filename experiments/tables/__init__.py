"""Tables as data: their rows, the scales that they run at, and tables in files of the user."""
