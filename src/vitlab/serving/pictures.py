"""Change and encode the pixels that a model sees.

C channels, S image_size
"""

import base64
from io import BytesIO

import numpy as np
from PIL import Image


def remove_patches(pixels: np.ndarray, places: list[int], grid: tuple[int, int], mean: list[float]) -> np.ndarray:
    """Fill patches, numbered row by row, with the mean colour of the training images, which is 0 once normalised.
    (C, S, S) -> (C, S, S)"""
    filled = pixels.copy()
    height, width = pixels.shape[1] // grid[0], pixels.shape[2] // grid[1]
    colour = np.round(np.array(mean) * 255).astype(np.uint8)[:, None, None]
    for row, column in (divmod(place, grid[1]) for place in places):
        filled[:, row * height : (row + 1) * height, column * width : (column + 1) * width] = colour
    return filled


def encode_picture(pixels: np.ndarray) -> str:
    """Encode pixels (C, S, S) as a PNG in a data URL."""
    plain = pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0)
    with BytesIO() as file:
        Image.fromarray(plain).save(file, "PNG")
        return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
