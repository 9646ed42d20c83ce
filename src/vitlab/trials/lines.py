"""Print what a fit is doing, for those who wait."""


def say(name: str, fact: str) -> None:
    """Print a line at once."""
    print(f"{name:<10}{fact}", flush=True)
