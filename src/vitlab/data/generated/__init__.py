"""Data that are computed: nothing is downloaded, and what is asked of a model is known; one file for each kind."""
