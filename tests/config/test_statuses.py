"""The exit status that other processes are told is the one that a command ends with."""

import pytest
from pytorch_lightning.utilities.exceptions import SIGTERMException

from vitlab.config.refusals import find_status
from vitlab.errors import DataError


def left_by_lightning():
    """As it leaves at Ctrl-C outside of training."""
    try:
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt:
            raise SystemExit(1)  # noqa: B904
    except SystemExit as stop:
        return stop


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (SIGTERMException(), 143),
        (left_by_lightning(), 130),
        (KeyboardInterrupt(), 130),
        (SystemExit(5), 5),
        (DataError("x"), 3),
        (AssertionError(), 1),
    ],
)
def test_of_each_end(error, status):
    assert find_status(error) == status
