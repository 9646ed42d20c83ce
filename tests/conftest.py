"""Tests run offline and on the CPU, in one process where they can: an import of torch costs seconds."""

import functools
import gc
import json
import os
import pickle
import shutil
import signal
import sys
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

import numpy as np
import omegaconf.base
import pytest
from hydra._internal.sources_registry import SourcesRegistry  # private: files are read once in all tests
from hydra.core.plugins import Plugins
from omegaconf import OmegaConf
from PIL import Image
from torch.utils.data._utils import signal_handling

from vitlab.config.arguments import is_group
from vitlab.config.home import CONF
from vitlab.errors import DataError

os.environ |= {
    "WANDB_MODE": "offline",
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",  # tiny tensors: a second thread costs more than it computes
}
os.environ.pop("WANDB_API_KEY", None)

gc.disable()  # while the libraries are imported, which leaves nothing to collect

SRC = Path(__file__).parents[1] / "src"
sys.path.insert(0, str(SRC))  # the entries: train, evaluate, predict

BARE = ["~callbacks.evaluation_report", "~callbacks.batch_picture", "~callbacks.model_views"]  # no pictures
FEW = ["data.split.labels_per_class=26", "global_batch_size=64"]  # a fifth of the digits, 4 steps an epoch


def pytest_collection_finish():
    """From here on garbage is collected, seldom, and never looked for in the libraries."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    gc.enable()


def pytest_unconfigure():
    gc.unfreeze()


def vit_options(**changes):
    """All keywords of VisionTransformer, as conf/model/vit_mu4.yaml and its base state them, with `changes`."""
    base, sizes = (OmegaConf.load(CONF / "model" / f"{name}.yaml") for name in ("_vit", "vit_mu4"))
    options = OmegaConf.to_container(OmegaConf.merge(base, sizes), resolve=False)
    for key in ("_target_", "defaults", "pretrained", "pretrained_partial", "pretrained_head", "published"):
        options.pop(key, None)
    return options | {"image_size": 32, "in_chans": 1, "num_classes": 10} | changes


def image_folder(root, classes=("cat", "dog"), count=10, splits=("train",), size=8):
    """A tiny data set on disk: noise in the colour of its class."""
    random = np.random.RandomState(0)
    for split in splits:
        for number, name in enumerate(classes):
            (root / split / name).mkdir(parents=True)
            for i in range(count):
                pixels = random.randint(0, 100, (size, size, 3), dtype=np.uint8)
                pixels[..., number] += 150
                Image.fromarray(pixels).save(root / split / name / f"{i}.png")
    return root


TINY = ["model=vit_mu4", "trainer=cpu", "trainer.precision=32-true", "logger=none", "data.loading.num_workers=0"]


def chosen(*words):
    """These words, but of each group that is chosen several times the last option alone: tests add to lists."""
    last = {word.partition("=")[0]: number for number, word in enumerate(words)}
    return [word for n, word in enumerate(words) if last[key := word.partition("=")[0]] == n or not is_group(key)]


def read_once(source):
    """Spare Hydra reading the same thirty files for each command: a third of what it takes to compose."""
    load, known = source.load_config, {}

    def loaded(self, config_path):
        if self.scheme() == "file" and Path(self.path) != CONF:
            return load(self, config_path)
        key = (self.path, config_path)
        if key not in known:
            known[key] = pickle.dumps(load(self, config_path))  # OmegaConf's own copies take seven times as long
        return pickle.loads(known[key])

    source.load_config = loaded


for scheme in ("file", "pkg"):
    read_once(Plugins.instance() and SourcesRegistry.instance().types[scheme])
omegaconf.base.parse = functools.lru_cache(None)(omegaconf.base.parse)  # interpolations: a sixth of a command


def leave_the_others():
    """A run of several processes ends with its process; here the next one begins in it."""
    import torch.distributed

    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory):
    """Measurements of the machine, which all tests share, are not kept among those of who runs them."""
    root = tmp_path_factory.getbasetemp()
    os.environ["XDG_CACHE_HOME"] = str((root.parent if "PYTEST_XDIST_WORKER" in os.environ else root) / "cache")


@pytest.fixture
def cli(monkeypatch, tmp_path, capfd):
    """Run an entry in this process as a user would: cli("train", "seed=1") -> status, out, err and the run's folder.
    `tiny`: with the smallest model; `pictures`: with those that a run draws by default, which take longer than it;
    `exact`: with the words as they are, also those of groups that are chosen twice."""
    monkeypatch.chdir(tmp_path)

    def run(
        entry: str,
        *overrides: str,
        folder: str | None = None,
        tiny: bool = True,
        pictures: bool = False,
        exact: bool = False,
    ) -> SimpleNamespace:
        module = __import__(entry)
        arguments = list(overrides)
        if tiny and entry == "train":
            own = pictures or any(word.startswith("resume=") for word in overrides)
            bare = [] if own else [word for word in BARE if not any(word[1:] in given for given in overrides)]
            arguments = [*TINY, *bare, *arguments]
        if folder is not None:
            arguments.append(f"hydra.run.dir={folder}")
        monkeypatch.setattr(sys, "argv", [str(SRC / f"{entry}.py"), *(arguments if exact else chosen(*arguments))])
        capfd.readouterr()
        status = 0
        before = signal.signal(signal.SIGINT, signal.default_int_handler)  # as in a terminal; test processes ignore it
        try:
            with patch.dict(os.environ):  # Lightning leaves the rank and the port of a run of several processes there
                module.main()
        except SystemExit as error:
            status = error.code if isinstance(error.code, int) else int(error.code is not None)
        finally:
            signal.signal(signal.SIGINT, before)
            if signal.getsignal(signal.SIGCHLD) is signal.SIG_DFL:  # as a command leaves it
                signal_handling._SIGCHLD_handler_set = False  # torch's, which the next loader sets again
            leave_the_others()
        captured = capfd.readouterr()
        return SimpleNamespace(
            status=status, out=captured.out, err=captured.err, folder=tmp_path / folder if folder else None
        )

    return run


@pytest.fixture
def own(trained, tmp_path):
    """What a file's `trained` has made, to be changed."""
    shutil.copytree(trained, tmp_path, dirs_exist_ok=True)
    return tmp_path


def evaluated(folder, split="test", **reading):
    """What the last evaluation of a run has found, or the one that was written to this folder."""
    own = sorted(folder.glob(f"evaluate/*/evaluation_{split}.json"), key=lambda file: file.stat().st_mtime_ns)
    return json.loads((own[-1] if own else folder / f"evaluation_{split}.json").read_text(), **reading)


def mostly_slow(cases, quick=1):
    """All but the first `quick` of these cases are slow ones."""
    cases = list(cases)
    return cases[:quick] + [
        pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.slow) for case in cases[quick:]
    ]


def refuses(run, sentence):
    """Whether a command ended with one line, which says this."""
    return run.status != 0 and sentence in run.err and len(run.err.strip().splitlines()) == 1


def finished(folder, *overrides, tiny=True):
    """A run that tests share, of the smallest model unless `tiny` is false."""
    with pytest.MonkeyPatch.context() as monkeypatch, patch.dict(os.environ):
        words = [*chosen(*(TINY if tiny else []), *overrides), f"hydra.run.dir={folder}"]
        monkeypatch.setattr(sys, "argv", ["train.py", *words])
        monkeypatch.chdir(folder.parent)
        __import__("train").main()
    return folder


@pytest.fixture(scope="session")
def digits_run(tmp_path_factory):
    """A finished run of two epochs on the digits, shared by tests that only read it."""
    return finished(tmp_path_factory.mktemp("digits") / "run", "trainer.max_epochs=2")


@pytest.fixture(scope="session")
def short_run(tmp_path_factory):
    """The same on a fifth of the digits, 4 steps an epoch, without pictures: to go on with in a copy."""
    return finished(tmp_path_factory.mktemp("short") / "run", *BARE, *FEW, "trainer.max_epochs=2")


def groups_of(model, **options):
    """The parameter groups of a model, or of a part of it."""
    from vitlab.models import parameter_kinds
    from vitlab.optim import parameter_groups

    return parameter_groups(dict(model.named_parameters()), parameter_kinds(model), **options)


@pytest.fixture
def refused():
    """refused(source, *words): preparing and opening raises DataError in one sentence that holds the words."""

    def check(source, *words, error=DataError):
        with pytest.raises(error) as caught:
            source.prepare() or source.open()
        for word in words:
            assert str(word) in str(caught.value)
        assert "\n" not in str(caught.value)

    return check


@pytest.fixture
def picture():
    """picture(path, seed): writes an image of 4x4 whose pixels are a function of the seed."""

    def write(path, seed=0):
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.random.RandomState(seed).randint(0, 256, (4, 4, 3), dtype=np.uint8)).save(path)
        return path

    return write
