"""How far away the nearest thing is: what VTAB asks of KITTI and CLEVR (Zhai et al., 2019, arXiv:1910.04867).

The edges of the classes are those of its authors' code, google-research/task_adaptation. n images
"""

import json
from typing import Any

import numpy as np

VEHICLES = {"Car", "Van", "Truck"}
METRES = (8.0, 20.0)
VEHICLE_CLASSES = ("up to 8 m", "up to 20 m", "further", "no vehicle")
DEPTHS = (8.0, 8.5, 9.0, 9.5, 10.0)  # from the camera, in the units of the scene
OBJECT_CLASSES = ("up to 8", "up to 8.5", "up to 9", "up to 9.5", "up to 10", "further")


def find_nearest_vehicle(dataset: Any) -> tuple[list[str], list[int]]:
    """Give paths and classes (n,) of torchvision's Kitti, sorted by name: the depth of the nearest car, van or
    truck."""
    order = sorted(range(len(dataset.images)), key=dataset.images.__getitem__)
    classes = []
    for i in order:
        depths = [thing["location"][2] for thing in dataset._parse_target(i) if thing["type"] in VEHICLES]
        classes.append(int(np.digitize(min(depths), METRES, right=True)) if depths else len(METRES) + 1)
    return [dataset.images[i] for i in order], classes


def find_nearest_object(dataset: Any) -> tuple[list[Any], list[int]]:
    """Give paths and classes (n,) of torchvision's CLEVRClassification: the depth of the nearest object."""
    with open(dataset._data_folder / "scenes" / f"CLEVR_{dataset._split}_scenes.json", encoding="utf-8") as file:
        scenes = json.load(file)["scenes"]
    depths = {scene["image_filename"]: min(thing["pixel_coords"][2] for thing in scene["objects"]) for scene in scenes}
    classes = np.digitize([depths[path.name] for path in dataset._image_files], DEPTHS, right=True)
    return dataset._image_files, classes.tolist()
