"""Several processes as one run: how they start, wait for each other, and end."""
