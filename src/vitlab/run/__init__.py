"""What a run is made of: model, parts, trainer, what it keeps and what it says."""
