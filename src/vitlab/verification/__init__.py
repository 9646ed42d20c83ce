"""Check a finished run against its chain of digests, and choose the parts that are computed again."""
