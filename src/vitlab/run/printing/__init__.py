"""Print the start and the result of a run, hints and the next commands; keep train.log."""
