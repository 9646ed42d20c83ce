"""Read files of tensors: .safetensors, .npz, and what torch saves. Nothing in them is executed."""

import argparse
import json
import zipfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vitlab.checkpoints.file import check_records
from vitlab.errors import CheckpointError
from vitlab.weights.renaming import Tensors

TORCH = (".pth", ".pt", ".bin")
SUFFIXES = (".safetensors", ".npz", *TORCH)
WRAPPERS = ("state_dict_ema", "model_ema", "state_dict", "model", "teacher")  # which hold the tensors; averages first
PREFIXES = ("module.", "_orig_mod.", "model.", "timm_model.")  # put before all names by wrappers of modules
BACKBONE = "backbone."  # put before the encoder's names, where there is a head
INDEX = ".index.json"


def read_tensors(path: Path) -> Tensors:
    """Read the tensors of a file onto the CPU, without their wrappings. Raises CheckpointError for any other file."""
    if path.name.endswith(INDEX):
        return read_shards(path)
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            tensors: Any = load_file(path)
        elif path.suffix == ".npz":
            tensors = read_npz(path)
        elif path.suffix in TORCH:
            tensors = unwrap_tensors(read_torch(path))
        else:
            raise CheckpointError(f"{path} is not a file of weights; its name must end in one of {', '.join(SUFFIXES)}")
    except CheckpointError:
        raise
    except Exception as error:  # each library raises kinds of its own, few of them documented
        reason = str(error).strip().split("\n")[0]
        raise CheckpointError(f"{path} is damaged, or holds no weights: {reason}") from error
    if not tensors:
        raise CheckpointError(f"{path} holds no tensors")
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not tensor.isfinite().all():
            raise CheckpointError(f"{path} is damaged, or its training diverged: {name} holds NaN or infinity")
    return strip_prefixes(tensors)


def read_shards(index: Path) -> Tensors:
    """Read a large model from several files, which a JSON lists."""
    tensors: Tensors = {}
    for file in shards(index):
        tensors |= read_tensors(index.with_name(Path(file).name))
    return tensors


def shards(file: Path) -> list[str]:
    """List the files that an index names; none for a file that is no index. Raises CheckpointError."""
    if not file.name.endswith(INDEX):
        return []
    try:
        return sorted(set(json.loads(file.read_text())["weight_map"].values()))
    except (OSError, ValueError, KeyError, AttributeError) as error:
        raise CheckpointError(f"{file} lists no files of weights") from error


def read_npz(path: Path) -> Tensors:
    import numpy as np

    with np.load(path, allow_pickle=False) as arrays:
        read = {name: arrays[name] for name in arrays.files}
    tensors = {}
    for name, array in read.items():
        if array.dtype.kind == "V" and array.dtype.itemsize == 2:  # numpy knows no bfloat16
            tensors[name] = torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
        elif array.dtype.kind in "fiu":
            tensors[name] = torch.from_numpy(np.ascontiguousarray(array).reshape(array.shape))
    return tensors


def read_torch(path: Path) -> Any:
    if zipfile.is_zipfile(path):
        check_records(path)
    try:
        with torch.serialization.safe_globals([argparse.Namespace]):  # DeiT, MAE and DINO save their options so
            return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        if "weights_only" in str(error) and "Unsupported global" in str(error):
            raise CheckpointError(
                f"{path} holds code, which is not executed; save only its state_dict, best as .safetensors"
            ) from error
        raise CheckpointError(f"{path} is damaged, or was not written by torch.save") from error


def unwrap_tensors(content: Any) -> Tensors:
    """Take the tensors out of nested dicts."""
    while isinstance(content, dict):
        tensors = {name: value for name, value in content.items() if isinstance(value, Tensor)}
        inner = next((content[key] for key in WRAPPERS if isinstance(content.get(key), dict)), None)
        if inner is None:
            return tensors
        content = inner
    return {}


def strip_prefixes(tensors: Tensors) -> Tensors:
    """Strip the prefixes of wrapping modules."""
    for prefix in PREFIXES:
        if all(name.startswith(prefix) for name in tensors):
            return strip_prefixes({name.removeprefix(prefix): value for name, value in tensors.items()})
    if any(name.startswith(BACKBONE) for name in tensors):
        return {name.removeprefix(BACKBONE): value for name, value in tensors.items()}
    return tensors
