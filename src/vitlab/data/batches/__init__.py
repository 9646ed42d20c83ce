"""Batches: what a worker hands over, what the model takes, and what happens in between."""
