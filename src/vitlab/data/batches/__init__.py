"""What a worker hands over and what the model takes, and what happens between."""
