"""Every kind of stored image becomes the same 8-bit pixels, upright, whichever library decodes it."""

import io
import struct
import warnings
import zlib

import numpy as np
import pytest
from pictures import photo, stored
from PIL import Image, ImageOps

from vitlab.data.images import decoding
from vitlab.data.images.decoding import DamagedImage, FastJPEG, PillowFile, exif_block, open_image

ORIENTATION = 0x0112
COMMENT = b"\xff\xfe" + struct.pack(">H", 60_002) + b"\xff\xda" * 30_000  # 60 kB that look like the start of pixels


@pytest.fixture(params=["simplejpeg", "pillow"])
def library(request, monkeypatch):
    """With the extra `fast` and without."""
    if request.param == "pillow":
        monkeypatch.setattr(decoding, "simplejpeg", lambda: None)
    return request.param


def decoded(content, image_mode=None, wanted=None):
    return np.asarray(open_image(content, image_mode).pixels(wanted)[0])


# -- modes

RED, GRAY = (200, 40, 10), (200 * 299 + 40 * 587 + 10 * 114 + 500) // 1000  # ITU-R 601


def palette(transparency=None):
    image = Image.new("P", (4, 4), 7)
    image.putpalette([0] * 21 + [*RED] + [0] * 744)
    return stored(image, "PNG", **({} if transparency is None else {"transparency": transparency}))


def of(mode, colour, file_format="PNG", **options):
    return stored(Image.new(mode, (4, 4), colour), file_format, **options)


def halfway(value):
    """Half transparent, on white."""
    return round((value * 128 + 255 * 127) / 255)


RED_ON_WHITE = [halfway(value) for value in RED]
KINDS = {
    # stored -> pixel as RGB, as L, and as stored
    "1": (of("1", 1), [255] * 3, [255], [255]),
    "L": (of("L", 90), [90] * 3, [90], [90]),
    "L with a transparent gray": (of("L", 90, transparency=90), [255] * 3, [255], [90]),
    "L with another transparent gray": (of("L", 90, transparency=91), [90] * 3, [90], [90]),
    "LA": (of("LA", (90, 128)), [halfway(90)] * 3, [halfway(90)], [90, 128]),
    "P": (palette(), RED, [GRAY], RED),
    "P with a transparent colour": (palette(7), [255] * 3, [255], [*RED, 0]),
    "P with alpha": (palette(bytes([255] * 7 + [128])), RED_ON_WHITE, None, [*RED, 128]),
    "P in GIF": (stored(Image.open(io.BytesIO(palette())), "GIF"), RED, [GRAY], RED),
    "RGB": (of("RGB", RED), RED, [GRAY], RED),
    "RGB with a transparent colour": (of("RGB", RED, transparency=RED), [255] * 3, [255], RED),
    "RGBA": (of("RGBA", (*RED, 128)), RED_ON_WHITE, None, [*RED, 128]),
    "RGBA in WebP": (of("RGBA", (*RED, 0), "WEBP", lossless=True, exact=True), [255] * 3, [255], [*RED, 0]),
    "CMYK in TIFF": (of("CMYK", (55, 215, 245, 0), "TIFF"), RED, [GRAY], [55, 215, 245, 0]),
    "YCbCr in JPEG": (of("RGB", RED, "JPEG", quality=100), RED, [GRAY], RED),
    "L in JPEG": (of("L", 90, "JPEG", quality=100), [90] * 3, [90], [90]),
    "CMYK in JPEG": (of("CMYK", (55, 215, 245, 0), "JPEG", quality=100), RED, [GRAY], [55, 215, 245, 0]),
    "16 bits in PNG": (stored(np.full((4, 4), 90 * 256 + 255, np.uint16), "PNG"), [90] * 3, [90], [90]),
    "16 bits in TIFF": (stored(np.full((4, 4), 90 * 256 + 255, np.uint16), "TIFF"), [90] * 3, [90], [90]),
    "16 bits in PGM": (b"P5 4 4 65535\n" + struct.pack(">16H", *[90 * 256 + 255] * 16), [90] * 3, [90], [90]),
    "BMP": (of("RGB", RED, "BMP"), RED, [GRAY], RED),
    "PPM": (of("RGB", RED, "PPM"), RED, [GRAY], RED),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("image_mode", ["RGB", "L", None])
def test_every_mode_is_converted_to_the_one_that_is_asked_for(library, kind, image_mode):
    content, *pixels = KINDS[kind]
    expected = pixels[("RGB", "L", None).index(image_mode)]
    found = decoded(content, image_mode)
    assert found.dtype == np.uint8
    assert found.shape == (4, 4) if image_mode == "L" or (expected and len(expected) == 1) else (4, 4, found.shape[-1])
    if expected is not None:
        tolerance = 2 if "JPEG" in kind or "CMYK" in kind else 1 if image_mode == "L" else 0
        assert abs(found[2, 2].astype(int) - expected).max() <= tolerance, found[2, 2]


def test_a_tiff_of_lab_colours_is_converted_as_pillow_does():
    content = stored(Image.fromarray(photo(8, 8)).convert("LAB"), "TIFF")
    assert np.array_equal(decoded(content, "RGB"), np.asarray(Image.open(io.BytesIO(content)).convert("RGB")))
    assert abs(decoded(content, "RGB").astype(int) - photo(8, 8)).max() < 8


def test_16_bit_colours_lose_their_lower_byte():
    def chunk(kind, content):
        body = kind + content
        return struct.pack(">I", len(content)) + body + struct.pack(">I", zlib.crc32(body))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 16, 2, 0, 0, 0))
    pixel = zlib.compress(b"\0" + struct.pack(">3H", 0x12FF, 0x8000, 0xFFFF))
    content = b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", pixel) + chunk(b"IEND", b"")
    assert decoded(content).tolist() == [[[0x12, 0x80, 0xFF]]]


def test_an_adobe_cmyk_jpeg_is_as_pillow_reads_it(library):
    """Photoshop stores the four colours inverted, and says so in a segment of its own."""
    plain = stored(Image.fromarray(photo(60, 80)).convert("CMYK"), "JPEG", quality=95)
    assert b"Adobe" in plain
    image = Image.open(io.BytesIO(plain))
    assert image.mode == "CMYK"
    assert np.array_equal(decoded(plain, "RGB"), np.asarray(image.convert("RGB")))
    assert abs(decoded(plain, "RGB").astype(int) - photo(60, 80)).mean() < 6


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (stored(Image.new("F", (4, 4), 0.5), "TIFF"), "float or 32-bit pixels .mode F. have no known range"),
        (stored(Image.new("I", (4, 4), 70_000), "TIFF"), "float or 32-bit pixels .mode I. have no known range"),
        (b"", "no image that Pillow knows"),
        (b"not an image", "no image that Pillow knows"),
    ],
    ids=["float", "32-bit", "empty", "text"],
)
def test_what_cannot_be_read_is_refused_in_words(content, words):
    with pytest.raises(DamagedImage, match=words) as caught:
        decoded(content, "RGB")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("channels", [1, 2, 3, 4, 5])
def test_pixels_are_what_they_are_and_converted_if_asked(channels):
    pixels = np.random.RandomState(0).randint(0, 256, (5, 7, channels), dtype=np.uint8)
    assert np.array_equal(decoded(pixels), pixels)
    if channels in (3, 4):
        expected = {3: lambda: Image.fromarray(pixels).convert("L"), 4: lambda: flattened(Image.fromarray(pixels), "L")}
        assert np.array_equal(decoded(pixels, "L"), expected[channels]())
    plane = pixels[:, :, 0]
    assert np.array_equal(decoded(plane, "RGB"), np.stack([plane] * 3, axis=2))


def flattened(image, mode):
    white = Image.new("RGBA", image.size, "white")
    return np.asarray(Image.alpha_composite(white, image.convert("RGBA")).convert("RGB").convert(mode))


def test_transparency_is_laid_on_white_everywhere():
    pixels = np.random.RandomState(0).randint(0, 256, (16, 16, 4), dtype=np.uint8)
    for file_format, options in {"PNG": {}, "TIFF": {}, "WEBP": {"lossless": True, "exact": True}}.items():
        found = decoded(stored(pixels, file_format, **options), "RGB")
        assert np.array_equal(found, flattened(Image.fromarray(pixels), "RGB"))


@pytest.mark.parametrize("file_format", ["GIF", "WEBP", "PNG", "TIFF"])
def test_of_several_frames_the_first_is_taken(file_format):
    frames = [Image.new("RGB", (8, 8), colour) for colour in (RED, (0, 255, 0), (0, 0, 255))]
    lossless = {"lossless": True} if file_format == "WEBP" else {}
    content = stored(frames[0], file_format, save_all=True, append_images=frames[1:], **lossless)
    assert Image.open(io.BytesIO(content)).n_frames == 3
    assert (decoded(content, "RGB") == RED).all()


# -- orientation


def turned(pixels, orientation):
    """As it is stored by a camera held like that; EXIF's own table, from upright."""
    back = {
        1: pixels,
        2: pixels[:, ::-1],
        3: pixels[::-1, ::-1],
        4: pixels[::-1],
        5: pixels.transpose(1, 0, 2),
        6: np.rot90(pixels, 1),
        7: pixels.transpose(1, 0, 2)[::-1, ::-1],
        8: np.rot90(pixels, -1),
    }
    return np.ascontiguousarray(back[orientation])


def exif(orientation):
    block = Image.Exif()
    block[ORIENTATION] = orientation
    block[0x010E] = "a description"
    return block


BEST = {"PNG": {}, "TIFF": {}, "WEBP": {"lossless": True}, "JPEG": {"quality": 95, "subsampling": 0}}


@pytest.mark.parametrize("file_format", BEST)
@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_is_undone(library, file_format, orientation):
    upright = photo(24, 40)
    content = stored(turned(upright, orientation), file_format, exif=exif(orientation), **BEST[file_format])
    picture = open_image(content, "RGB")
    assert picture.size == (24, 40)
    found = np.asarray(picture.pixels()[0]).astype(int)
    assert abs(found - upright).max() <= (40 if file_format == "JPEG" else 0)
    assert abs(found - upright).mean() < 2


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("place", ["behind the header", "behind 120 kB of comments", "in a large file"])
def test_exif_orientation_is_found_wherever_it_stands_in_a_jpeg(library, orientation, place):
    height, width = (900, 600) if place == "in a large file" else (24, 40)
    upright = photo(height, width)
    plain = stored(turned(upright, orientation), "JPEG", quality=95, subsampling=0, exif=exif(orientation))
    content = plain[:2] + 2 * COMMENT + plain[2:] if "comments" in place else plain
    assert len(content) > 65_536 or place == "behind the header"
    picture = open_image(content, "RGB")
    assert picture.size == (height, width)
    found = np.asarray(picture.pixels()[0])
    assert abs(found.astype(int) - upright).mean() < 3
    assert np.array_equal(found, np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(content)))))


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_turned_jpeg_is_decoded_small_in_its_own_direction(library, orientation):
    upright = photo(640, 320)
    content = stored(turned(upright, orientation), "JPEG", quality=95, exif=exif(orientation))
    pixels, scale = open_image(content, "RGB").pixels((160, 80))
    assert (np.asarray(pixels).shape, scale) == ((160, 80, 3), 4)
    expected = np.asarray(Image.fromarray(upright).resize((80, 160), Image.Resampling.BOX))
    assert abs(np.asarray(pixels).astype(int) - expected).mean() < 2


@pytest.mark.parametrize("file_format", ["JPEG", "WEBP", "PNG"])
def test_a_damaged_exif_block_leaves_the_picture(library, file_format):
    content = stored(photo(60, 80), file_format, exif=exif(6), **BEST[file_format])
    start = content.find(b"II*\0") if b"II*\0" in content else content.find(b"MM\0*")
    damaged = content[:start] + b"XX" + content[start + 2 :]
    if file_format == "PNG":  # its checksum is right, what it covers is not
        kind = content.find(b"eXIf")
        length = struct.unpack(">I", content[kind - 4 : kind])[0]
        body = damaged[kind : kind + 4 + length]
        damaged = damaged[:kind] + body + struct.pack(">I", zlib.crc32(body)) + damaged[kind + 8 + length :]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = decoded(damaged, "RGB")
        assert np.array_equal(found, np.asarray(Image.open(io.BytesIO(damaged)).convert("RGB")))


@pytest.mark.parametrize("value", [0, 9, 255, 65_535])
def test_an_orientation_that_there_is_not_is_upright(library, value):
    content = stored(photo(24, 40), "JPEG", exif=exif(value))
    assert decoded(content).shape == (24, 40, 3)


@pytest.mark.parametrize(
    "content", [b"", b"\xff", b"\xff\xd8\xff\xe1", b"\xff\xd8\xff\xe1\0", b"\xff\xd8" + b"\xff" * 99]
)
def test_the_end_of_a_file_ends_the_search_for_exif(content):
    assert exif_block(content) == b""


# -- JPEGs at a lower resolution, and by another library


@pytest.mark.parametrize("size", [(375, 500), (501, 333), (768, 1024), (197, 403)])
@pytest.mark.parametrize("wanted", [1.0, 0.6, 0.5, 0.26, 0.125, 0.05])
def test_a_jpeg_decoded_at_a_lower_resolution_looks_like_the_whole_one_resized(library, size, wanted):
    pixels = photo(*size)
    content = stored(pixels, "JPEG", quality=92)
    height, width = (wanted * side for side in size)
    smaller, scale = open_image(content, "RGB").pixels((height, width))
    smaller = np.asarray(smaller)
    assert smaller.shape[:2] == tuple(-(-side // scale) for side in size)
    assert scale in (1, 2, 4, 8)
    assert scale == 8 or min(side // (2 * scale) - wanted * side for side in size) < 0  # not a step too careful
    assert (scale == 1) or (size[0] // scale >= height and size[1] // scale >= width)
    target = (max(int(width), 1), max(int(height), 1))
    found = np.asarray(Image.fromarray(smaller).resize(target, Image.Resampling.BICUBIC)).astype(int)
    full = np.asarray(Image.open(io.BytesIO(content)).resize(target, Image.Resampling.BICUBIC)).astype(int)
    assert abs(found - full).mean() < 2


@pytest.mark.parametrize("size", [(375, 500), (500, 333), (64, 64), (17, 31), (1, 1), (1, 40), (255, 257)])
@pytest.mark.parametrize("subsampling", [0, 1, 2])
@pytest.mark.parametrize("progressive", [False, True])
@pytest.mark.parametrize("gray", [False, True])
def test_simplejpeg_gives_pillows_pixels_bit_for_bit_at_every_scale(monkeypatch, size, subsampling, progressive, gray):
    image = Image.fromarray(photo(*size)).convert("L" if gray else "RGB")
    content = stored(image, "JPEG", quality=85, subsampling=subsampling, progressive=progressive)
    for image_mode in (None, "RGB", "L"):
        for divisor in (None, 1, 2, 3, 4, 7.5, 8, 16, 100):
            wanted = None if divisor is None else (size[0] / divisor, size[1] / divisor)
            picture, reference = open_image(content, image_mode), PillowFile(content, image_mode)
            assert isinstance(picture, FastJPEG) or (image_mode == "L" and not gray)
            assert picture.size == reference.size
            (pixels, scale), (expected, other) = picture.pixels(wanted), reference.pixels(wanted)
            assert scale == other
            assert np.array_equal(np.asarray(pixels), np.asarray(expected))


def test_a_jpeg_of_several_pictures_is_its_first(library):
    frames = [Image.fromarray(photo(40, 60, seed)) for seed in (0, 1)]
    content = stored(frames[0], "MPO", save_all=True, append_images=frames[1:])
    for wanted in (None, (10, 15)):
        pixels, scale = open_image(content, "RGB").pixels(wanted)
        small = frames[0].resize((60 // scale, 40 // scale), Image.Resampling.BOX)
        assert abs(np.asarray(pixels).astype(int) - np.asarray(small)).mean() < 5


def test_without_simplejpeg_there_is_none(monkeypatch):
    monkeypatch.setattr(decoding, "find_spec", lambda name: None)
    decoding.simplejpeg.cache_clear()
    assert decoding.simplejpeg() is None
    assert isinstance(open_image(stored(photo(60, 80), "JPEG"), "RGB"), PillowFile)
    decoding.simplejpeg.cache_clear()


# -- files that are too large, or torn


def with_size(content, height, width):
    """A JPEG whose header says another size."""
    place = content.find(b"\xff\xc0") + 5
    return content[:place] + struct.pack(">HH", height, width) + content[place + 4 :]


def png_of(height, width):
    header = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    checksum = struct.pack(">I", zlib.crc32(header))
    return b"\x89PNG\r\n\x1a\n\0\0\0\x0d" + header + checksum + b"\0\0\0\0IDAT\x35\xaf\x06\x1e"


@pytest.mark.parametrize("image_mode", ["RGB", None])
@pytest.mark.parametrize(("height", "width"), [(10_000, 10_000), (60_000, 60_000)])
@pytest.mark.parametrize("file_format", ["JPEG", "PNG"])
def test_a_bomb_is_refused_by_a_sentence_before_it_is_decoded(library, file_format, height, width, image_mode):
    content = (
        with_size(stored(photo(60, 80), "JPEG"), height, width) if file_format == "JPEG" else png_of(height, width)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        with pytest.raises(DamagedImage, match=r"pixels are more than the limit of 89,478,485|exceeds limit"):
            open_image(content, image_mode)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.99])
@pytest.mark.parametrize("file_format", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_a_torn_file_is_refused(library, file_format, share):
    content = stored(photo(200, 300), file_format)
    with pytest.raises(DamagedImage) as caught:
        decoded(content[: int(share * len(content))], "RGB")
    assert str(caught.value)
