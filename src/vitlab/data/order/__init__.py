"""The order of samples: which comes when."""
