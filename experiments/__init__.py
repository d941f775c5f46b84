"""What is done with the package: figures, benchmarks, and later sweeps and tables."""
