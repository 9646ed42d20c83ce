"""The commands: one module for each, named as its entry, that reads as a page."""
