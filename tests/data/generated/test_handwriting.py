"""What another hand does to a glyph: it bends it, by another pen, and leaves a spot out."""

import numpy as np
import pytest

from vitlab.data.generated.handwriting import OF_A_HAND, warp_glyphs


@pytest.fixture
def glyph():
    glyph = np.zeros((10, 10), np.uint8)
    glyph[1:-1, 1:-1] = np.random.default_rng(0).integers(0, 256, (8, 8))
    return glyph


def changed(glyph, **numbers):
    """By other numbers than those that change nothing."""
    row = np.full(OF_A_HAND, 0.5)
    for name, value in numbers.items():
        row[{"pen": 0, "spotted": 1, "spot": slice(2, 4), "down": slice(4, 13), "right": slice(13, 22)}[name]] = value
    return warp_glyphs(glyph[None], row[None])[0].astype(float)


def test_nothing_is_changed_by_numbers_in_the_middle(glyph):
    fine = changed(glyph)
    assert fine.shape == (20, 20)
    means = fine.reshape(10, 2, 10, 2).mean(axis=(1, 3))
    across = np.pad(glyph, 1, mode="edge") @ (np.eye(12, 10, 0) + 6 * np.eye(12, 10, -1) + np.eye(12, 10, -2)) / 8
    expected = (np.eye(10, 12, 0) + 6 * np.eye(10, 12, 1) + np.eye(10, 12, 2)) @ across / 8
    assert means == pytest.approx(expected, abs=0.6)


def test_knots_that_move_together_shift_the_glyph(glyph):
    ramp = np.tile(np.arange(10, dtype=np.uint8) * 20, (10, 1))
    inner = np.s_[4:-4, 4:-4]
    assert (changed(ramp, right=1.0) - changed(ramp))[inner] == pytest.approx(0.7 * 20, abs=1)
    assert (changed(ramp, down=0.0) - changed(ramp))[inner] == pytest.approx(0, abs=1)
    assert (changed(ramp.T, down=0.0) - changed(ramp.T))[inner] == pytest.approx(-0.7 * 20, abs=1)


def test_a_pen_is_thicker_or_thinner(glyph):
    thick, plain, thin = (changed(glyph, pen=number) for number in (0.0, 0.5, 1.0))
    gray = (plain > 5) & (plain < 250)
    assert gray.any()
    assert (thick > plain)[gray].all()
    assert (thin < plain)[gray].all()


def test_a_spot_of_two_pixels_is_left_out(glyph):
    glyph = np.maximum(glyph, 1)
    assert (changed(glyph, spotted=0.31) == changed(glyph)).all()
    rows, columns = np.nonzero(changed(glyph, spotted=0.29, spot=[0.0, 1.0]) == 0)
    assert (len(set(rows)), len(set(columns)), len(rows)) == (4, 4, 16)
    assert (rows.mean() / 2 - 0.25, columns.mean() / 2 - 0.25) == pytest.approx((1.5, 7.5))


def test_each_glyph_has_a_hand_of_its_own(glyph):
    numbers = np.random.default_rng(1).random((3, OF_A_HAND))
    together = warp_glyphs(np.stack([glyph] * 3), numbers)
    for one, row in zip(together, numbers, strict=True):
        assert np.array_equal(one, warp_glyphs(glyph[None], row[None])[0])
    assert len({one.tobytes() for one in together}) == 3
