"""Serve a bundle over HTTP, until Ctrl-C or SIGTERM."""

import json
import os
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig
from rich.console import Console

from vitlab.bundles import layout
from vitlab.config.nodes import make_node, resolve_value
from vitlab.errors import CheckpointError, ConfigError

if TYPE_CHECKING:  # loaded once the libraries are known to be there
    from vitlab.serving.decoding import ImageLimits
    from vitlab.serving.explanation import Explainer
    from vitlab_runtime.bundle import Bundle

NEEDED = {"fastapi": "fastapi", "uvicorn": "uvicorn", "prometheus_client": "prometheus_client"}
NEEDED |= {"python_multipart": "python-multipart", "onnxruntime": "onnxruntime"}
SHORTEST = 8  # letters of a token


def serve(cfg: DictConfig) -> None:
    """Check all, print where the server listens, and serve. Raises ConfigError and CheckpointError before that."""
    check_libraries()
    from vitlab.serving.application import Limits, Server, build_app
    from vitlab.serving.decoding import MEGA
    from vitlab.serving.network import format_address, listen, serve_until_signal

    image_limits, token = read_image_limits(cfg), read_token(cfg.token_file)
    with listen(cfg.host, cfg.port) as listener:
        bundle, index = open_bundle(Path(cfg.bundle), cfg.threads or os.cpu_count() or 1)
        limits = Limits(int(cfg.max_megabytes * MEGA), cfg.max_images, cfg.queue, cfg.deadline)
        explainer = open_explainer(Path(cfg.bundle), bundle, index) if cfg.heat_maps else "heat_maps=false was chosen"
        decoders = cfg.decoders or os.cpu_count() or 1
        name = str(index["name"])
        server = Server(name, bundle, explainer, limits, image_limits, decoders=decoders, batch_size=cfg.batch_size)
        tell(server, format_address(listener), cfg.host, token)
        serve_until_signal(build_app(server, token, cfg.top_k), listener)


def check_libraries() -> None:
    """Raise ConfigError without the libraries that a server needs."""
    if missing := [name for module, name in NEEDED.items() if find_spec(module) is None]:
        raise ConfigError(f"serve needs {', '.join(missing)}; pip install 'vitlab[serve]'")
    if find_spec("vitlab_runtime") is None:
        raise ConfigError("serve needs vitlab-runtime, in the folder runtime of the repository; pip install ./runtime")


def read_image_limits(cfg: DictConfig) -> "ImageLimits":
    """Read what images are accepted. Raises ConfigError for a format that Pillow does not read."""
    from PIL import Image

    from vitlab.serving.decoding import GIB, MEGA, ImageLimits

    Image.init()
    formats = tuple(name.upper() for name in resolve_value(cfg.formats))
    for name in formats:
        if name not in Image.OPEN:
            raise ConfigError(f"formats names {name.lower()}, which Pillow does not read; use names such as jpeg, png")
    if not formats:
        raise ConfigError("formats is empty; name at least one, such as formats=[jpeg,png]")
    return ImageLimits(formats, int(cfg.max_megapixels * MEGA), int(cfg.memory_gib * GIB))


def read_token(file: str | None) -> str | None:
    """Read the token that requests must send; None: they need none. Raises ConfigError for a file without one."""
    if file is None:
        return None
    try:
        token = Path(file).read_text(encoding="ascii").strip()
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not plain ASCII text"
        raise ConfigError(f"the file of token_file cannot be read: {reason}; write a token into it") from error
    if len(token) < SHORTEST or not token.isprintable() or " " in token:
        raise ConfigError(f"the file of token_file must hold one word of {SHORTEST} or more letters")
    return token


def open_bundle(folder: Path, threads: int) -> tuple["Bundle", dict[str, Any]]:
    """Open a bundle after its digests are checked, and read its index. Raises CheckpointError."""
    from vitlab_runtime.bundle import open_bundle, read_manifest
    from vitlab_runtime.errors import BundleError

    hint = ""
    try:
        content, digest = read_manifest(folder)
        return open_bundle(folder, digest, threads, os.getpid()), json.loads(content)
    except BundleError as error:
        if not (folder / layout.INDEX).is_file():
            hint = f"; write one with export run=RUN format=bundle output={folder}"
        raise CheckpointError(f"{error}{hint}") from None


def open_explainer(folder: Path, bundle: "Bundle", index: dict[str, Any]) -> "Explainer | str":
    """Rebuild the model that attention is shown of, from the bundle's weights; or say why there is none. Raises
    CheckpointError for damaged weights."""
    if layout.WEIGHTS not in index["files"]:
        return "the bundle holds no weights, as one that compress wrote"
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    from vitlab.models import VisionTransformer
    from vitlab.run.building.model import build_model
    from vitlab.serving.explanation import Explainer
    from vitlab_runtime.bundle import check_file
    from vitlab_runtime.errors import BundleError

    try:
        for name in (layout.WEIGHTS, layout.MODEL_CONFIG):
            check_file(folder / name, **index["files"][name])
        model = build_model(make_node(json.loads((folder / layout.MODEL_CONFIG).read_bytes())))
        model.load_state_dict(load_file(folder / layout.WEIGHTS))
    except BundleError as error:
        raise CheckpointError(str(error)) from None
    except (KeyError, RuntimeError, ValueError, SafetensorError) as error:
        raise CheckpointError(f"{folder} holds weights that do not fit its model; export the run again") from error
    if not isinstance(model, VisionTransformer):
        return f"a {type(model).__name__} has no attention"
    return Explainer(model.eval(), bundle.preprocessing)


def tell(server: Any, address: str, host: str, token: str | None) -> None:
    """Print what is served, where, and how to ask."""
    from vitlab.serving.network import is_loopback

    console = Console(soft_wrap=True, highlight=False, markup=False)
    console.print(f"{'model':<9}{server.name}, {len(server.bundle.labels)} classes")
    console.print(f"{'page':<9}{address}/")
    header = "-H 'Authorization: Bearer TOKEN' " if token else ""
    console.print(f"{'predict':<9}curl {header}--data-binary @photo.jpg {address}/predict")
    console.print(f"{'more':<9}{address}/openapi.json, /health, /ready, /metrics; Ctrl-C stops")
    if server.missing:
        console.print(f"{'note':<9}heat maps are missing: {server.missing}")
    if not is_loopback(host) and token is None:
        console.print(f"{'warning':<9}everybody who reaches host={host} may use it; token_file= asks for a token")
