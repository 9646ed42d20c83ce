"""Errors that a user can cause, in one sentence each, with the exit status that vitlab gives them."""


class Refusal(ValueError):  # noqa: N818
    """An error for the user, by default in what was asked for."""

    status = 2

    def __init__(self, sentence: str):
        super().__init__(escape_letters(sentence))


class ImageError(Refusal):
    """An image cannot be read."""

    status = 3


class BundleError(Refusal):
    """A bundle is missing or damaged, or this package cannot use it."""

    status = 4


def escape_letters(text: str) -> str:
    """Write line breaks and other letters that cannot be printed as \\xNN or \\uNNNN."""
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" if ord(c) < 256 else f"\\u{ord(c):04x}" for c in text)
