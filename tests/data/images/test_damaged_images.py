"""Whatever bytes a file holds: it is the picture that Pillow sees in them, or it is named, and no process dies."""

import faulthandler
import io
import json
import os
import subprocess
import sys
import warnings
import zlib
from collections import Counter
from contextlib import suppress

import numpy as np
import pytest
from pictures import stored
from PIL import Image, ImageOps

from vitlab.data import RandomResizedCrop, TokenBudget
from vitlab.data.batches.batch import Sample, UnreadableImage, collate
from vitlab.data.images import decoding
from vitlab.data.loading.dataset import ImageSplit
from vitlab.data.order.sampler import Key
from vitlab.data.pools.pool import Pool

SECONDS = 5  # for one reading of a file
LARGEST = 256 * 256  # pixels up to which a picture is taken as it is
HEIGHT, WIDTH = 41, 59
OTHER_SIZES = (0, 1, 40, 60, 300, 9_000, 30_000, 65_535, 2**31 - 1)
DELIBERATE = ("pixels are more than", "no known range")  # what Pillow would read, and we do not


# -- files


def pixels(channels=3):
    random = np.random.RandomState(0)
    coarse = Image.fromarray(random.randint(0, 256, (7, 9, 4), dtype=np.uint8))
    whole = np.asarray(coarse.resize((WIDTH, HEIGHT), Image.Resampling.BICUBIC))
    return whole[:, :, 0] if channels == 1 else np.ascontiguousarray(whole[:, :, :channels])


def turned(orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    exif[0x010E] = "a description"
    return exif


def interlaced():
    """A PNG in Adam7's seven passes, which Pillow does not write."""
    rows = b""
    for y, x, down, across in (
        (0, 0, 8, 8),
        (0, 4, 8, 8),
        (4, 0, 8, 4),
        (0, 2, 4, 4),
        (2, 0, 4, 2),
        (0, 1, 2, 2),
        (1, 0, 2, 1),
    ):
        rows += b"".join(b"\0" + row.tobytes() for row in np.ascontiguousarray(pixels()[y::down, x::across]))
    header = WIDTH.to_bytes(4, "big") + HEIGHT.to_bytes(4, "big") + bytes([8, 2, 0, 0, 1])
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def chunk(kind, body):
    return len(body).to_bytes(4, "big") + kind + body + zlib.crc32(kind + body).to_bytes(4, "big")


def originals():
    rgb, rgba, gray = (Image.fromarray(pixels(channels)) for channels in (3, 4, 1))
    deep = Image.fromarray((pixels(1).astype(np.uint16) << 8) + 77)
    palette = rgb.quantize(50)
    frames = {"save_all": True, "append_images": [rgb.rotate(90), rgb.rotate(180)]}
    files = {
        "jpeg": stored(rgb, "JPEG"),
        "jpeg 4:4:4": stored(rgb, "JPEG", subsampling=0, quality=95),
        "jpeg progressive": stored(rgb, "JPEG", progressive=True),
        "jpeg restarts": stored(rgb, "JPEG", restart_marker_blocks=2),
        "jpeg gray": stored(gray, "JPEG"),
        "jpeg cmyk": stored(rgb.convert("CMYK"), "JPEG"),
        "jpeg of several": stored(rgb, "MPO", **frames),
        "jpeg comment": stored(rgb, "JPEG", comment=b"Exif\0\0 MM\0*" * 20, icc_profile=bytes(3000)),
        **{f"jpeg exif {o}": stored(rgb, "JPEG", exif=turned(o)) for o in (1, 3, 6, 8)},
        "png": stored(rgb, "PNG"),
        "png 16": stored(deep, "PNG"),
        "png palette": stored(palette, "PNG"),
        "png transparent": stored(palette, "PNG", transparency=3),
        "png alpha": stored(rgba, "PNG"),
        "png gray alpha": stored(rgba.convert("LA"), "PNG"),
        "png 1": stored(gray.convert("1"), "PNG"),
        "png exif": stored(rgb, "PNG", exif=turned(6)),
        "png interlaced": interlaced(),
        "tiff": stored(rgb, "TIFF"),
        "tiff exif": stored(rgb, "TIFF", exif=turned(6)),
        "tiff 16": stored(deep, "TIFF"),
        "tiff float": stored(Image.fromarray(pixels(1).astype(np.float32)), "TIFF"),
        "tiff cmyk": stored(rgb.convert("CMYK"), "TIFF"),
        "tiff alpha": stored(rgba, "TIFF"),
        **{
            f"tiff {c}": stored(rgb, "TIFF", compression=c)
            for c in ("tiff_lzw", "tiff_adobe_deflate", "packbits", "jpeg")
        },
        "tiff fax": stored(gray.convert("1"), "TIFF", compression="group4"),
        "webp": stored(rgb, "WEBP"),
        "webp lossless": stored(rgba, "WEBP", lossless=True),
        "webp frames": stored(rgb, "WEBP", **frames),
        "webp exif": stored(rgb, "WEBP", exif=turned(8)),
        "gif": stored(palette, "GIF"),
        "gif frames": stored(palette, "GIF", save_all=True, append_images=[palette.rotate(90)], transparency=2),
        "bmp": stored(rgb, "BMP"),
        "bmp palette": stored(palette, "BMP"),
        "ppm": stored(rgb, "PPM"),
        "pgm 16": b"P5 %d %d 65535\n" % (WIDTH, HEIGHT) + pixels(1).astype(">u2").tobytes(),
        "ppm in text": b"P3 3 2 255\n" + b" 1 20 255" * 6,
        "pbm": stored(gray.convert("1"), "PPM"),
    }
    return list(files.items())


def mutated(content, random, others):
    """-> what was done, and the file afterwards"""
    file = bytearray(content)
    place = int(random.randint(len(file)))
    length = int(random.randint(1, max(len(file) // 4, 2)))
    what = MUTATIONS[random.randint(len(MUTATIONS))]
    match what:
        case "truncated":
            del file[place:]
        case "bits":
            for _ in range(random.randint(1, 9)):
                file[random.randint(len(file))] ^= 1 << random.randint(8)
        case "bits in front":
            for _ in range(random.randint(1, 5)):
                file[random.randint(min(len(file), 200))] ^= 1 << random.randint(8)
        case "zeros":
            file[place : place + length] = bytes(len(file[place : place + length]))
        case "noise":
            file[place : place + length] = random.bytes(len(file[place : place + length]))
        case "left out":
            del file[place : place + length]
        case "put in":
            file[place:place] = random.bytes(length)
        case "another's end":
            other = others[random.randint(len(others))][1]
            file[place:] = other[random.randint(len(other)) :]
        case "dimensions":
            resized(file, random)
        case "empty":
            file.clear()
        case "text":
            file[:] = b"<html>404 not found</html>" * int(random.randint(1, 50))
    if content.startswith(b"\x89PNG") and random.randint(2):
        file = with_checksums(file)
    return what, bytes(file)


MUTATIONS = (
    *("truncated", "bits", "bits", "bits in front", "bits in front", "zeros", "noise", "left out", "put in"),
    *("another's end", "dimensions", "dimensions", "empty", "text", "nothing"),
)


def resized(file, random):
    """Another height or width, wherever the header states it, in whatever form."""
    side = (HEIGHT, WIDTH)[random.randint(2)]
    other = OTHER_SIZES[random.randint(len(OTHER_SIZES))]
    forms = [(size, order) for size in (4, 2) for order in ("big", "little")]
    for size, order in forms:
        place = file.find(side.to_bytes(size, order), 0, 400)
        if place >= 0 and other < 256**size:
            file[place : place + size] = other.to_bytes(size, order)
            return
    place = file.find(b"%d" % side, 0, 40)
    if place >= 0:
        file[place : place + 2] = b"%d" % other


def with_checksums(file):
    """A PNG whose chunks are what their checksums say, so that a decoder reads on."""
    whole, place = file[:8], 8
    while place + 12 <= len(file):
        end = place + 8 + int.from_bytes(file[place : place + 4], "big")
        if end + 4 > len(file):
            break
        whole += file[place:end] + zlib.crc32(file[place + 4 : end]).to_bytes(4, "big")
        place = end + 4
    return whole + file[place:]


class Mutants(Pool):
    """File i is a function of i."""

    def __init__(self, count):
        super().__init__(np.zeros(count, dtype=np.int64), f"mutants {count}")
        self.originals = originals()

    def mutant(self, i):
        random = np.random.RandomState(i)
        kind, content = self.originals[random.randint(len(self.originals))]
        return kind, *mutated(content, random, self.originals)

    def load(self, i):
        return self.mutant(i)[2]

    def name(self, i):
        kind, what, _ = self.mutant(i)
        return f"{i} ({kind}, {what})"


# -- what becomes of them


def by_pillow(content):
    """The picture as RGB on white, or the error."""
    try:
        image = Image.open(io.BytesIO(content))
        if image.width * image.height > decoding.MOST_PIXELS:
            return ValueError("a bomb")
        image.load()
        with suppress(Exception):  # the picture is whole, what is written about it is not
            image = ImageOps.exif_transpose(image)
        if image.mode.startswith("I;16") or image.mode == "I":
            image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
        if image.has_transparency_data:
            white = Image.new("RGBA", image.size, "white")
            image = Image.alpha_composite(white, image.convert("RGBA"))
        return np.asarray(image.convert("RGB"))
    except Exception as error:
        return error


def judged(numbers, count):
    """Pass files through every way to read them. -> how often each outcome came, and what should not have been."""
    pool, library = Mutants(count), decoding.simplejpeg
    settings = {"image_mode": "RGB", "in_chans": 3, "transform": None, "seed": 0}
    budget = {"patch_size": 1, "max_tokens": LARGEST, "enlarge": False, "flip_rate": 0.0, "interpolation": "bilinear"}
    ranges = {"scale": [0.08, 1.0], "ratio": [3 / 4, 4 / 3], "method": "inception", "flip_rate": 0.5}
    splits = [
        ImageSplit(pool, np.arange(count), crop=crop, **settings)
        for crop in (TokenBudget(**budget), RandomResizedCrop(image_size=8, interpolation="bilinear", **ranges))
    ]
    outcomes, wrong, whole = Counter(), [], []
    for i in numbers:
        print(pool.name(i), file=sys.stderr, flush=True)
        found = {}
        for name, way in (("simplejpeg", library), ("pillow", lambda: None)):
            decoding.simplejpeg, found[name] = way, []
            for split in splits:
                faulthandler.dump_traceback_later(SECONDS, exit=True)
                found[name] += split.samples([Key(0, i)])
                faulthandler.cancel_dump_traceback_later()
        decoding.simplejpeg = library
        expected = by_pillow(pool.load(i))
        kind = pool.mutant(i)[0]
        trouble = disagreement(expected, *found["simplejpeg"], *found["pillow"])
        if trouble:
            wrong.append(f"{pool.name(i)}: {trouble}")
        first = found["simplejpeg"][0]
        outcomes[type(first).__name__] += 1
        outcomes[f"{kind.split()[0]} {type(first).__name__}"] += 1
        whole.append(first)
    batch = collate(whole, None, 1)
    if len(batch.index) + len(batch.unreadable) != len(numbers):
        wrong.append(f"{len(batch.index)} loaded and {len(batch.unreadable)} named of {len(numbers)}")
    return outcomes, wrong


def disagreement(expected, whole, crop, plain, plain_crop):
    """Why these readings of one file do not fit together, or None."""
    if any(type(sample) is not type(whole) for sample in (crop, plain, plain_crop)):
        return "readable in one way, not in another"
    if isinstance(whole, UnreadableImage):
        if not whole.reason or whole != plain:
            return f"named as {whole.reason!r} and {plain.reason!r}"
        deliberate = any(words in whole.reason for words in DELIBERATE)
        return None if isinstance(expected, Exception) or deliberate else f"Pillow reads it, and we say {whole.reason}"
    assert isinstance(whole, Sample)
    if isinstance(expected, Exception):
        return f"we read it, and Pillow says {expected}"
    if not np.array_equal(whole.image, plain.image) or not np.array_equal(crop.image, plain_crop.image):
        return "simplejpeg gives another picture than Pillow"
    height, width = expected.shape[:2]
    if height * width <= LARGEST and not np.array_equal(whole.image.permute(1, 2, 0), expected):
        return "not the picture that Pillow gives"
    return None


def in_a_process(first, count):
    """`judged` where a crash or a file that takes too long ends only that process."""
    command = [sys.executable, __file__, str(first), str(count)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    finished = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=280)
    assert finished.returncode == 0, finished.stderr[-2000:]  # its last lines name the file
    outcomes, wrong = json.loads(finished.stdout)
    assert wrong == []
    assert outcomes["Sample"] + outcomes["UnreadableImage"] == count
    return outcomes


@pytest.mark.slow
def test_100_files():
    outcomes = in_a_process(0, 100)
    assert outcomes["Sample"] > 20
    assert outcomes["UnreadableImage"] > 20


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_10_000_files():
    print(in_a_process(1000, 10_000))


if __name__ == "__main__":
    first, count = map(int, sys.argv[1:])
    warnings.simplefilter("ignore")
    totals, troubles = Counter(), []
    for start in range(first, first + count, 50):
        outcomes, wrong = judged(range(start, min(start + 50, first + count)), first + count)
        totals += outcomes
        troubles += wrong
    json.dump([totals, troubles], sys.stdout)
