"""A bundle with weights, and a server of it in its own process."""

import json
import re
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from io import BytesIO
from types import SimpleNamespace

import httpx
import numpy as np
import pytest
import torch
from conftest import SRC, vit_options
from PIL import Image
from runtime.conftest import LABELS, PREPROCESSING, list_files, write_bundle
from safetensors.torch import save_file

from vitlab.bundles.graph import Scorer
from vitlab.models import VisionTransformer
from vitlab.tasks.known_classes import KnownClasses

OPTIONS = vit_options(depth=2, in_chans=3, num_classes=len(LABELS))


def encode(size=(40, 44), form="PNG", seed=0, mode="RGB"):
    """The bytes of an image file of noise."""
    channels = {"L": (), "RGB": (3,), "RGBA": (4,)}[mode]
    pixels = np.random.RandomState(seed).randint(0, 256, (size[1], size[0], *channels), dtype=np.uint8)
    with BytesIO() as file:
        Image.fromarray(pixels).save(file, form)
        return file.getvalue()


@contextmanager
def serving(folder, *words, entry=SRC / "serve.py"):
    """Run the command until it is ready; gives its process, its address and a client. Ends it with SIGTERM."""
    words = [f"bundle={folder}", "port=0", "decoders=2", "threads=1", *words]
    process = subprocess.Popen(
        [sys.executable, entry, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, bufsize=1
    )
    printed = []
    for line in process.stdout:
        printed.append(line)
        if found := re.search(r"^page +(http://\S+)/$", line):
            address = found[1]
        if line.startswith("more"):
            break
    else:
        raise AssertionError("".join(printed))
    reading = threading.Thread(target=lambda: printed.extend(process.stdout), daemon=True)
    reading.start()
    with httpx.Client(base_url=address, timeout=60, transport=httpx.HTTPTransport(retries=30)) as client:
        try:
            yield SimpleNamespace(process=process, address=address, client=client, printed=printed)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)
            reading.join(10)


@pytest.fixture(scope="session")
def bundle(tmp_path_factory):
    """`folder`, and the `scorer` and the `model` that it was written from."""
    torch.manual_seed(0)
    model = VisionTransformer(**OPTIONS).eval()
    for parameter in model.parameters():  # as large as after a training: attention is not even
        torch.nn.init.normal_(parameter, std=0.3)
    D = model.head.in_features
    features = torch.randn(50 * len(LABELS), D)
    known = KnownClasses.fit(features, torch.arange(len(features)) % len(LABELS)).accept(features, 0.05)
    scorer = Scorer(model, lambda logits: (logits / 0.5).softmax(dim=1), known).eval()
    folder = write_bundle(tmp_path_factory.mktemp("serving") / "bundle", scorer)
    save_file(model.state_dict(), folder / "model.safetensors")
    config = {"_target_": "vitlab.models.VisionTransformer", **OPTIONS}
    (folder / "model.json").write_text(json.dumps(config))
    return SimpleNamespace(folder=list_files(folder), scorer=scorer, model=model, preprocessing=PREPROCESSING)
