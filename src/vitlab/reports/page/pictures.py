"""Turn images into what a page holds: data URIs of small pictures, and heat maps laid over them.

C channels, H W image height and width
"""

import base64
from io import BytesIO

import numpy as np
from matplotlib import colormaps
from PIL import Image

LARGEST = 112  # pixels of a picture's longer side
PIXELS = 32  # up to this size, pixels are kept as they are
MAP = 128  # pixels of the longer side of a heat map
HEAT = 0.6  # share of the map's colours over the image


def encode_picture(pixels: np.ndarray, largest: int = LARGEST) -> str:
    """Encode uint8 pixels (C, H, W) as a data URI: small ones as PNG, others as JPEG of at most `largest` pixels."""
    image = to_rgb(pixels)
    content = BytesIO()
    if max(image.size) <= PIXELS:
        image.save(content, "PNG", optimize=True)
        return f"data:image/png;base64,{base64.b64encode(content.getvalue()).decode()}"
    image.thumbnail((largest, largest), Image.Resampling.LANCZOS)
    image.save(content, "JPEG", quality=82, optimize=True)
    return f"data:image/jpeg;base64,{base64.b64encode(content.getvalue()).decode()}"


def encode_heat_map(pixels: np.ndarray, heat: np.ndarray) -> str:
    """Lay a map over an image, brightest where it is highest, as a data URI: (C, H, W) uint8, (rows, columns)."""
    image = to_rgb(pixels)
    factor = MAP / max(image.size)
    size = (round(image.width * factor), round(image.height * factor))
    colours = colormaps["inferno"](heat / max(float(heat.max()), 1e-12))[..., :3]
    above = Image.fromarray((255 * colours).astype(np.uint8)).resize(size, Image.Resampling.NEAREST)
    below = image.convert("L").convert("RGB").resize(size, Image.Resampling.NEAREST)
    return encode_picture(np.asarray(Image.blend(below, above, HEAT)).transpose(2, 0, 1), MAP)


def to_rgb(pixels: np.ndarray) -> Image.Image:
    """Convert uint8 pixels (C, H, W) to colours; of 2 or more than 4 channels the first is shown."""
    shown = pixels[:3] if len(pixels) in (3, 4) else pixels[:1].repeat(3, axis=0)
    return Image.fromarray(np.ascontiguousarray(shown.transpose(1, 2, 0)))
