"""Checkpoint files, and the folders of runs they lie in."""
