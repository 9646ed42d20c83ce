"""Errors that a user can make, each with the exit status of a single run. The message is one sentence for that user."""

import re

# in names of files and classes: line breaks, a terminal's commands, and what changes the direction of a text
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
MOST_LETTERS = 2000
FROM_A_WORKER = "Caught "  # what torch writes before an error of a worker, with its traceback


def escaped(letter: re.Match[str]) -> str:
    """Write a letter that a terminal would not show as \\xNN or \\uNNNN."""
    code = ord(letter[0])
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"


class VitlabError(Exception):
    """A refusal: it names the key or file, and what would be right, in one line short enough to be read."""

    status = 1

    def __init__(self, sentence: str):
        if not sentence.startswith(FROM_A_WORKER):
            sentence = CONTROL.sub(escaped, sentence)
            if len(sentence) > MOST_LETTERS:
                sentence = f"{sentence[: MOST_LETTERS // 2]} … {sentence[-MOST_LETTERS // 2 :]}"
        super().__init__(sentence)


class ConfigError(VitlabError, ValueError):
    """A value in the config is wrong, or two do not fit together."""

    status = 2


class DataError(VitlabError):
    """A data set is missing, damaged or not what the config says."""

    status = 3


class CheckpointError(VitlabError):
    """A run or checkpoint is missing, damaged or belongs to something else."""

    status = 4


class NonFiniteError(VitlabError):
    """Training has diverged: a loss or a weight is NaN or infinite."""

    status = 5


class StorageError(VitlabError):
    """The disk is full, or a folder cannot be written."""

    status = 6


class DistributedError(VitlabError):
    """The processes of one run cannot work together."""

    status = 7


def in_one_line(error: BaseException | str) -> str:
    """Give a foreign error's message in one line, or at least its kind."""
    return " ".join(str(error).split()) or type(error).__name__
