"""Serve a bundle over HTTP: decode, batch, score, explain, and the page at /."""
