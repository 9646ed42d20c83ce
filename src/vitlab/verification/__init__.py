"""Check a finished run against its chain of digests, and choose what of it is computed again."""
