"""Many images in a few large files, with an index of where each lies."""
