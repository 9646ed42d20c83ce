"""The batch that is advised divides a device's share of the global batch."""

import pytest

from vitlab.run.checks.batch_advice import find_largest_part


@pytest.mark.parametrize(
    ("share", "at_most", "part"), [(64, 40, 32), (60, 50, 30), (7, 6, 1), (8, 100, 8), (8, 0, None)]
)
def test_the_largest_part_of_a_share(share, at_most, part):
    assert find_largest_part(share, at_most) == part
