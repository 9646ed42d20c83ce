"""Data sets: where images and their classes come from; one file for each kind."""
