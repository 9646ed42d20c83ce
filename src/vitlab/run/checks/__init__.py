"""Refuse what does not fit together before work starts, and estimate the memory that it takes."""
