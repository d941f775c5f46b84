"""Work directories: checkpoints, metrics and results, and the process that writes them."""
