"""Generate sounds as pictures: spectrograms with a row for each semitone, whose class is a pitch and a
chord. Pixels are not special: to a Vision Transformer they are patches as any others.

T moments, F semitones, W samples of a window
"""

import functools
import hashlib
from typing import cast

import numpy as np

from vitlab.data.pools.pool import Pool, Source
from vitlab.data.targets import OneClass
from vitlab.errors import ConfigError
from vitlab.ranges import Count, Deviation, Pixels
from vitlab.seeding import draw_numbers, make_seed

NOTES = ("C", "C#", "D", "D#", "E", "F", "F#", "G", "G#", "A", "A#", "B")
CHORDS = {"alone": (0,), "major": (0, 4, 7), "minor": (0, 3, 7), "diminished": (0, 3, 6)}  # semitones above the root
RATE, WINDOW, HOP = 8000, 1024, 128  # samples in a second, in a window, and from one to the next
LOWEST, ROOT = 220.0, 261.63  # Hz: of the lowest row, and of the middle C
HARMONICS = 3  # of each note
DETUNED = 0.2  # semitones at most
LOUD = 6.0  # decibels above the median that are half of the range of a pixel
OF_A_NOTE = 2 + HARMONICS  # numbers that decide how it sounds
DRAWS = 1 + OF_A_NOTE * max(map(len, CHORDS.values()))


class SyntheticTones(Source):
    """`num_samples` sounds with noise, each a note or a chord above one of `num_roots` notes from the middle C on, as
    images (1, image_size, image_size) in uint8: time to the right, semitones upwards. The classes, a root and a chord,
    come in equal shares; loudness, tuning, overtones, decay and beginning vary. The same sounds for the same sizes.
    `noise` is a standard deviation beside notes of amplitude 0.5 to 1. Raises ConfigError for values out of range.
    """

    in_chans = 1

    def __init__(self, *, num_samples: Count, num_roots: Count, image_size: Pixels, noise: Deviation):
        if not 1 <= num_roots <= len(NOTES):
            raise ConfigError(f"data.source.num_roots {num_roots} is not from 1 to {len(NOTES)}")
        self.class_names = [f"{note} {chord}" for note in NOTES[:num_roots] for chord in CHORDS]
        if num_samples < len(self.class_names):
            raise ConfigError(
                f"data.source.num_samples {num_samples} is less than one for each of {len(self.class_names)} classes"
            )
        if not 24 <= image_size <= 48:
            raise ConfigError(f"data.image_size {image_size} is not from 24 to 48 semitones, the range of the chords")
        self.num_samples, self.image_size, self.noise = num_samples, image_size, noise

    def open(self) -> dict[str, Pool]:
        classes = np.arange(self.num_samples, dtype=np.int64) % len(self.class_names)
        return {"train": TonePool(OneClass(classes), self.image_size, self.noise)}


class TonePool(Pool):
    """Spectrograms, computed when they are asked for."""

    computed = True

    def __init__(self, targets: OneClass, image_size: Pixels, noise: Deviation):
        described = f"{image_size}/{noise}".encode() + targets.tobytes()
        super().__init__(targets, hashlib.blake2b(described, digest_size=8).hexdigest())
        self.image_size, self.noise = image_size, noise

    def load(self, i: int) -> np.ndarray:
        root, chord = divmod(int(self.targets.values[i]), len(CHORDS))
        numbers = draw_numbers("tones", np.array([[i]]), DRAWS)[0]
        sound = synthesize_chord(root, tuple(CHORDS.values())[chord], numbers, WINDOW + HOP * (self.image_size - 1))
        random = np.random.RandomState(make_seed("noise of tones", i) % 2**32)
        return spectrogram(sound + self.noise * random.standard_normal(len(sound)), self.image_size)

    def name(self, i: int) -> str:
        return f"sound {i}"


def synthesize_chord(root: int, chord: tuple[int, ...], numbers: np.ndarray, length: int) -> np.ndarray:
    """Notes above a root, that many semitones above the middle C, which begin together and fade. -> (length,)"""
    begin, *others = numbers.tolist()
    seconds = np.arange(length) / RATE - 0.3 * begin * length / RATE
    sound = np.zeros(length)
    for k, semitones in enumerate(chord):
        loud, tuned, *overtones = others[k * OF_A_NOTE : (k + 1) * OF_A_NOTE]
        pitch = ROOT * 2 ** ((root + semitones + DETUNED * (2 * tuned - 1)) / 12)
        fading = (0.5 + 0.5 * loud) * np.exp(-3 * overtones[0] * seconds.clip(0))
        for harmonic, overtone in enumerate(overtones, start=1):
            share = 1.0 if harmonic == 1 else 0.5 * overtone / harmonic
            sound += fading * share * np.sin(2 * np.pi * harmonic * pitch * seconds)
    return cast(np.ndarray, sound * (seconds >= 0))


@functools.cache
def waves(size: int) -> np.ndarray:
    """Cosines, then sines, of each semitone under Hann's window. -> (W, 2·F)"""
    angles = 2 * np.pi * np.outer(np.arange(WINDOW) / RATE, LOWEST * 2 ** (np.arange(size) / 12))
    both = np.concatenate([np.cos(angles), np.sin(angles)], axis=1) * np.hanning(WINDOW)[:, None]
    return both.astype(np.float32)


def spectrogram(sound: np.ndarray, size: int) -> np.ndarray:
    """Compute the loudness of each semitone at each moment, in decibels about the median. -> (size, size) uint8, low
    notes below"""
    frames = np.lib.stride_tricks.sliding_window_view(sound.astype(np.float32), WINDOW)[::HOP]  # (T, W)
    real, imaginary = (frames @ waves(size)).reshape(len(frames), 2, size).swapaxes(0, 1)
    decibels = 10 * np.log10(real**2 + imaginary**2 + 1e-9)  # (T, F)
    louder = (decibels - np.median(decibels)) / LOUD
    return np.ascontiguousarray(np.round(64 + 64 * louder).clip(0, 255).astype(np.uint8).T[::-1])
