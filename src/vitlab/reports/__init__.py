"""Read finished runs: tables over sweeps and seeds, confidence intervals, pictures."""
