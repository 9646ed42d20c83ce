"""Sounds as pictures: a row for each semitone, loud where a note of the chord is; always the same, all different."""

import numpy as np
import pytest

from vitlab.data import SyntheticTones
from vitlab.data.generated.synthetic_tones import CHORDS
from vitlab.errors import ConfigError


def tones(**changes):
    settings = {"num_samples": 96, "num_roots": 6, "image_size": 32, "noise": 0.5}
    return SyntheticTones(**settings | changes)


def test_sounds_are_images_of_classes_in_equal_shares():
    source = tones(image_size=24)
    pool = source.open()["train"]
    image = pool.load(95)
    assert (image.shape, image.dtype) == ((24, 24), np.uint8)
    assert source.class_names[:5] == ["C alone", "C major", "C minor", "C diminished", "C# alone"]
    assert set(np.bincount(pool.targets.values)) == {4}


def test_any_crop_takes_them(cli):
    run = cli("check", "data=synthetic_tones", "data.source.num_samples=480", "crop=random_resized", "seconds=0")
    assert run.status == 0, run.err


def test_the_rows_of_a_chord_are_loud():
    """Without noise, from the lowest row up: 3 semitones below the middle C, and of each class its own above."""
    pool = tones(noise=0.01).open()["train"]
    for i in range(48):
        root, chord = divmod(int(pool.targets.values[i]), len(CHORDS))
        rows = pool.load(i)[::-1, 16:24].astype(float).mean(axis=1)
        wanted = [3 + root + semitones for semitones in tuple(CHORDS.values())[chord]]
        among = rows[: 3 + root + 10]  # below the overtones of the root
        loudest = [
            r for r in range(1, len(among) - 1) if among[r] >= max(among[r - 1], among[r + 1]) and among[r] > 200
        ]
        assert set(wanted) <= set(loudest), (i, wanted, loudest)


def test_sounds_are_always_the_same_and_all_different():
    first, pool = [tones().open()["train"].load(i) for i in range(20)], tones().open()["train"]
    assert all(np.array_equal(first[i], pool.load(i)) for i in reversed(range(20)))
    assert len({image.tobytes() for image in first}) == 20
    assert tones().open()["train"].fingerprint != tones(noise=0.4).open()["train"].fingerprint


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"num_roots": 13}, "num_roots 13 is not from 1 to 12"),
        ({"num_samples": 10}, "num_samples 10 is less than one for each of 24 classes"),
        ({"image_size": 64}, "image_size 64 is not from 24 to 48 semitones"),
    ],
)
def test_sizes_out_of_range_are_refused(changes, sentence):
    with pytest.raises(ConfigError, match=sentence):
        tones(**changes)
