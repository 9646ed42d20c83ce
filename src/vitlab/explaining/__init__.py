"""One page that explains what a finished model computes of an image, with its own numbers."""
