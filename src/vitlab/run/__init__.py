"""Running: from a composed config to a finished run. The one room that knows Hydra and Lightning both."""
