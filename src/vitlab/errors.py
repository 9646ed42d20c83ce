"""Errors that a user can cause, each with the exit status of a single run. The message is one sentence."""

import re

# in names of files and classes: line breaks, terminal commands, marks of text direction, and letters that nobody sees
# (but for joiners, which some scripts need)
CONTROL = re.compile(
    r"[\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)
MAX_LETTERS = 2000
FROM_A_WORKER = "Caught "  # torch puts it before the traceback of a worker's error


def escape(letter: re.Match[str]) -> str:
    """Return the escape \\xNN or \\uNNNN of an unprintable letter."""
    code = ord(letter[0])
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"


class VitlabError(Exception):
    """An error for the user: one line that names the key or file, and what would be right."""

    status = 1

    def __init__(self, sentence: str):
        if not sentence.startswith(FROM_A_WORKER):
            sentence = CONTROL.sub(escape, sentence)
            if len(sentence) > MAX_LETTERS:
                sentence = f"{sentence[: MAX_LETTERS // 2]} … {sentence[-MAX_LETTERS // 2 :]}"
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


class RecomputationError(VitlabError):
    """A step that was computed twice gave two results."""

    status = 8


class AlteredError(VitlabError):
    """A run is not what it recorded: something was changed afterwards."""

    status = 9


def format_error(error: BaseException | str) -> str:
    """Return the message of a library's error on one line, or its class if it has none."""
    return " ".join(str(error).split()) or type(error).__name__
