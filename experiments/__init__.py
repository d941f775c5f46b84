"""Programs that use the package: sweeps, reports, claims, complexity, benchmarks and figures."""
