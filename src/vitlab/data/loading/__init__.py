"""A split as a data set, and the processes that read it."""
