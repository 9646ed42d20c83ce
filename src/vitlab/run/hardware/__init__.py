"""Measure what the machine is good at: precision, products, seconds of a step; float8."""
