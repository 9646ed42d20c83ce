"""The runtime gives the model the very pixels that `vitlab predict` gives it, whatever the file."""

import io
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from pictures import noise, photo, stored
from PIL import Image

from vitlab.data.batches.preprocessing import Preprocessing as Normalization
from vitlab.data.images.squares import CenterCrop, WholeImage
from vitlab.errors import DataError
from vitlab.run.inference.given_images import load_pixels
from vitlab_runtime.errors import ImageError
from vitlab_runtime.pixels import Preprocessing

ORIENTATION, DPI = 0x0112, 0x011A
INTERPOLATIONS = [name.lower() for name in Image.Resampling.__members__]
SIZES = [(1, 1), (1, 7), (5, 3), (32, 32), (36, 36), (33, 64), (47, 31), (64, 48), (3, 500), (700, 2), (127, 130)]
XMP = b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf tiff:Orientation="6"/></x:xmpmeta>'


def set_exif(orientation, more=None):
    exif = Image.Exif()
    exif[ORIENTATION] = orientation
    exif.update(more or {})
    return exif.tobytes()


def draw_palette(transparency=None, size=(41, 29)):
    image = Image.fromarray(photo(size[1], size[0])).quantize(20)
    return stored(image, "PNG", **({} if transparency is None else {"transparency": transparency}))


def draw_files():
    """Name -> content of files of many kinds."""
    rgb, gray = photo(40, 56), noise(40, 56)
    deep = noise(40, 56).astype(np.uint16) * 257 - 5
    image = Image.fromarray(rgb)
    translucent = Image.fromarray(np.dstack([rgb, gray]))
    files = {f"{kind}_{h}x{w}": stored(photo(h, w), kind) for kind in ("JPEG", "PNG") for h, w in SIZES}
    files |= {
        f"{kind}_orientation_{n}": stored(image, kind, exif=set_exif(n))
        for kind in ("JPEG", "PNG", "WEBP", "TIFF")
        for n in range(10)
    }
    files |= {f"L_JPEG_{n}": stored(gray, "JPEG", exif=set_exif(n)) for n in (1, 5, 6)}
    files |= {f"quality_{q}_{s}": stored(image, "JPEG", quality=q, subsampling=s) for q in (5, 95) for s in (0, 1, 2)}
    files |= {
        "progressive": stored(image, "JPEG", progressive=True),
        "CMYK": stored(image.convert("CMYK"), "JPEG"),
        "CMYK_turned": stored(image.convert("CMYK"), "JPEG", exif=set_exif(8)),
        "CMYK.tif": stored(image.convert("CMYK"), "TIFF"),
        "YCbCr.tif": stored(image.convert("YCbCr"), "TIFF"),
        "LAB.tif": stored(image.convert("LAB"), "TIFF"),
        "XMP_alone.jpg": stored(image, "JPEG", xmp=XMP),
        "XMP_and_EXIF.jpg": stored(image, "JPEG", xmp=XMP, exif=set_exif(3)),
        "XMP.webp": stored(image, "WEBP", xmp=XMP),
        "damaged_EXIF.jpg": stored(image, "JPEG", exif=set_exif(6)[:20]),
        "damaged_EXIF.png": stored(image, "PNG", exif=set_exif(6)[:20]),
        "damaged_end_of_EXIF.jpg": stored(image, "JPEG", exif=set_exif(6, {DPI: 1.5})[:-6]),
        "two_pictures.mpo": stored(image, "MPO", save_all=True, append_images=[Image.fromarray(rgb[::-1])]),
        "gray.png": stored(gray, "PNG"),
        "gray_transparent.png": stored(Image.fromarray(gray), "PNG", transparency=90),
        "LA.png": stored(translucent.convert("LA"), "PNG"),
        "RGBA.png": stored(translucent, "PNG"),
        "RGBA_turned.png": stored(translucent, "PNG", exif=set_exif(5)),
        "RGBA.webp": stored(translucent, "WEBP"),
        "RGBA.tif": stored(translucent, "TIFF"),
        "RGB_transparent.png": stored(Image.fromarray(rgb // 200 * 200), "PNG", transparency=(0, 0, 200)),
        "bilevel.png": stored(image.convert("1"), "PNG"),
        "bilevel.tif": stored(image.convert("1"), "TIFF", compression="group4"),
        "palette.png": draw_palette(),
        "palette_transparent.png": draw_palette(transparency=3),
        "palette_translucent.png": draw_palette(transparency=bytes(range(0, 200, 10))),
        "palette.gif": stored(image, "GIF"),
        "palette_transparent.gif": stored(image.quantize(30), "GIF", transparency=2),
        "moving.gif": stored(image, "GIF", save_all=True, append_images=[Image.fromarray(255 - rgb)]),
        "palette.bmp": stored(image.quantize(30), "BMP"),
        "RGB.bmp": stored(image, "BMP"),
        "RGB.ppm": stored(image, "PPM"),
        "gray.pgm": stored(gray, "PPM"),
        "deep.pgm": stored(Image.fromarray(deep), "PPM"),
        "deep.png": stored(Image.fromarray(deep), "PNG"),
        "deep_turned.png": stored(Image.fromarray(deep), "PNG", exif=set_exif(6)),
        "deep.tif": stored(Image.fromarray(deep), "TIFF"),
        "deep_turned.tif": stored(Image.fromarray(deep), "TIFF", exif=set_exif(6)),
        "32_bits.tif": stored(Image.fromarray(deep.astype(np.int32)), "TIFF"),
        "float.tif": stored(Image.fromarray(deep.astype(np.float32)), "TIFF"),
        "lossless.webp": stored(image, "WEBP", lossless=True),
        "packed.tif": stored(image, "TIFF", compression="tiff_lzw"),
        "empty": b"",
        "text": b"no picture",
        "cut.jpg": stored(photo(90, 90), "JPEG")[:900],
        "cut.png": stored(photo(90, 90), "PNG")[:900],
        "cut.gif": stored(photo(90, 90), "GIF")[:900],
        "without_end.jpg": stored(image, "JPEG")[:-2],
        "junk_behind.jpg": stored(image, "JPEG") + b"junk" * 100,
        "bomb.png": stored(Image.new("1", (30_000, 30_000)), "PNG"),
        "large.png": stored(Image.new("1", (10_000, 9_000)), "PNG"),
    }
    return files


FILES = draw_files()


def load_both(content, mode, channels, resize_size, interpolation, path=None):
    """What the runtime reads, and what vitlab reads: pixels, or a sentence."""
    crop = {"image_size": 32, "interpolation": interpolation}
    own = Preprocessing(mode=mode, channels=channels, resize_size=resize_size, mean=[0.5], std=[0.5], **crop)
    eval_crop = CenterCrop(resize_size=resize_size, **crop) if resize_size else WholeImage(**crop)
    datamodule = SimpleNamespace(images=SimpleNamespace(mode=mode, eval_crop=eval_crop), in_chans=channels)
    found = []
    for read in (lambda image: own.load(image), lambda image: load_pixels(image, datamodule).numpy()):
        try:
            found.append(read(content))
        except (ImageError, DataError) as error:
            found.append(str(error))
    return found


CROPS = [(size, name) for size in (None, 36) for name in INTERPOLATIONS]
COLOURS = [("RGB", 3), ("L", 1), (None, 3), (None, 1), (None, 4), ("RGBA", 4), ("LA", 2), (None, 2)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    for name, content in FILES.items():
        (folder / name).write_bytes(content)
    return folder


def assert_same(found, expected, name):
    assert type(found) is type(expected), (name, found, expected)
    if isinstance(found, str):
        assert found == expected, name
    else:
        assert found.dtype == expected.dtype == np.uint8
        assert found.shape == expected.shape, name
        assert np.array_equal(found, expected), name


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("mode", "channels"), COLOURS)
def test_files_of_any_kind_have_the_pixels_of_vitlab(folder, mode, channels):
    for number, name in enumerate(FILES):
        ways = (
            CROPS
            if channels in (1, 3) and mode and name not in ("bomb.png", "large.png")
            else [CROPS[number % len(CROPS)]]
        )
        for crop in ways:
            assert_same(*load_both(folder / name, mode, channels, *crop), name)


@pytest.mark.parametrize("crop", CROPS)
def test_images_of_any_size_have_the_pixels_of_vitlab(crop):
    random = np.random.RandomState(0)
    for _ in range(60):
        height, width = np.exp(random.uniform(0, 6.5, 2)).astype(int)
        pixels = noise(height, width, 3, seed=height)
        assert_same(*load_both(pixels, "RGB", 3, *crop), (height, width))


@pytest.mark.parametrize("resize_size", range(32, 80))
def test_any_resize_size_cuts_out_the_same_centre(resize_size):
    for shape in ((50, 91), (91, 50), (41, 41), (37, 3), (2, 999)):
        assert_same(*load_both(noise(*shape, 3), "RGB", 3, resize_size, "bilinear"), shape)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("mode", "channels"), COLOURS[:-2])  # vitlab resizes arrays of two channels by torch
def test_arrays_and_pillow_images_have_the_pixels_of_vitlab(mode, channels):
    gray = noise(40, 56)
    for array in (gray, gray[..., None], noise(40, 56, 3), noise(40, 56, 4), noise(40, 56, 3)[::-1, ::2]):
        assert_same(*load_both(array, mode, channels, 36, "bicubic"), array.shape)
    for name in FILES.keys() - {"bomb.png", "large.png", "text", "empty"}:
        if not name.startswith("cut"):
            image = Image.open(io.BytesIO(FILES[name]))
            assert_same(*load_both(image, mode, channels, 36, "bicubic"), name)


def test_bytes_are_read_as_the_file_is(folder):
    own = Preprocessing(
        mode="RGB", channels=3, image_size=32, resize_size=None, interpolation="bicubic", mean=[], std=[]
    )
    for content in (FILES["deep.png"], bytearray(FILES["deep.png"]), memoryview(FILES["deep.png"])):
        assert np.array_equal(own.load(content), own.load(str(folder / "deep.png")))


@pytest.mark.parametrize(
    "other", [None, 5, [1], np.zeros((4, 4)), np.zeros((0, 4), np.uint8), noise(4, 4, 7), noise(4)]
)
def test_what_is_no_image_is_refused_in_a_sentence(other):
    own = Preprocessing(
        mode="RGB", channels=3, image_size=32, resize_size=None, interpolation="bicubic", mean=[], std=[]
    )
    with pytest.raises(ImageError, match=f"^cannot read {type(other).__name__}: "):
        own.load(other)


def test_what_is_no_file_is_refused(tmp_path):
    own = Preprocessing(
        mode="RGB", channels=3, image_size=32, resize_size=None, interpolation="bicubic", mean=[], std=[]
    )
    for path in (tmp_path, tmp_path / "none", "/dev/zero"):
        with pytest.raises(ImageError, match=r"^cannot read .*(it is no file|No such file)"):
            own.load(path)


def test_pixels_are_normalised_to_the_last_bit():
    mean, std = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
    pixels = np.tile(np.arange(256, dtype=np.uint8).reshape(1, 1, 16, 16), (2, 3, 1, 1))
    own = Preprocessing(
        mode="RGB", channels=3, image_size=16, resize_size=None, interpolation="box", mean=mean, std=std
    )
    expected = Normalization(mean=mean, std=std, in_chans=3, patch_size=None).normalize(torch.from_numpy(pixels))
    assert torch.equal(torch.from_numpy(own.normalize(pixels)), expected)
