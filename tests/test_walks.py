"""Every key of a run with values that nobody means, and every file with damage: the work is done, or one sentence says
what is wrong, with a status of its own, and nothing is left behind."""

import io
import shutil
import tarfile

import numpy as np
import pytest
from conftest import BARE, TINY, image_folder
from forked import forked, is_an_answer, tree
from omegaconf import OmegaConf
from PIL import Image

from vitlab.config.composition import compose, initialize_hydra

pytestmark = [pytest.mark.exhaustive, pytest.mark.timeout(3000)]

STRANGE = ["-1", "0", "nan", "1000000000", "''", "[]", "null", "abc", "{a: 1}"]
SHORT = [*TINY, *BARE, "data=digits", "trainer.max_epochs=1", "trainer.limit_train_batches=2", "hydra.run.dir=run"]
SHORT += ["callbacks.latest_state.every_n_steps=1000"]
SETTINGS = {
    "plain": SHORT,
    "own": [*SHORT, "optimizer=sgd", "schedule=rsqrt", "augmentation=randaugment_erasing", "mixing=mixup_cutmix"],
    "large": [
        *SHORT,
        "optimizer=muon",
        "schedule=wsd",
        "augmentation=augmix",
        "callbacks=[default,ema]",
    ],
}
LEFT_ALONE = ("hydra", "engine", "compile", "float8", "teacher", "found", "needed", "logger")


FOR_EVER = {("trainer.max_epochs", "1000000000")}  # which is taken as it was typed


def leaves(node, key=""):
    for name, value in node.items():
        place = f"{key}.{name}" if key else str(name)
        if isinstance(value, dict) and value:
            yield from leaves(value, place)
        elif not place.split(".")[0].startswith(LEFT_ALONE) and name not in ("_target_", "_partial_"):
            yield place


def keys_of(words):
    with initialize_hydra("train"):
        cfg = OmegaConf.to_container(compose("train", words).cfg, resolve=False)
    return list(leaves(cfg))


def odd_answer(entry, words, folder):
    """What is wrong with a command's answer; None where nothing is. Damage that is met while a run trains leaves the
    run, with the log that tells of it."""
    before = tree(folder)
    run = forked(entry, words, folder)
    told = f"{entry} {' '.join(words[-3:])} -> {run.status}: {run.err.strip()[-300:]}"
    if not is_an_answer(run):
        return told
    if run.status and tree(folder) != before and not (folder / "run" / "train.log").exists():
        return f"left behind: {sorted({line[0] for line in set(tree(folder)) ^ set(before)})[:3]} by {told}"
    return None


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("part", range(4))
def test_no_value_of_a_training_is_taken_that_nobody_means(tmp_path, setting, part):
    words, seen = SETTINGS[setting], set(keys_of(SETTINGS["plain"])) if setting != "plain" else set()
    keys = [key for key in keys_of(words) if key not in seen][part::4]
    assert keys
    odd = []
    for key in keys:
        for number, value in enumerate(one for one in STRANGE if (key, one) not in FOR_EVER):
            folder = tmp_path / f"{key}_{number}"
            folder.mkdir()
            odd.append(odd_answer("train", [*words, f"{key}={value}"], folder))
            shutil.rmtree(folder)
    assert [one for one in odd if one] == []


COMMANDS = {
    "evaluate": ["split", "output", "overwrite", "num_worst", "beam_width", "length_penalty", "trainer.devices"],
    "predict": [
        *("images", "texts", "top_k", "question", "labels", "batch_size", "output", "overwrite", "on_bad_image"),
        *("device", "num_workers", "share", "sort_into", "trust"),
    ],
    "runs": ["root", "where", "sort", "columns", "most", "output", "rm", "archive"],
    "new": ["output", "overwrite"],
    "export": ["format", "output", "overwrite"],
    "visualize": ["num_images", "views", "images", "texts", "output"],
    "probe": ["k", "temperature", "shots", "draws", "l2_exponents", "output", "precision", "batch_size", "seed"],
    "features": ["split", "output", "batch_size", "precision"],
    "summary": ["precision", "activation_checkpointing", "memory_gib", "tensors", "global_batch_size"],
    "survey": ["output", "overwrite", "global_batch_size", "seed", "data.in_chans"],
    "pack": ["shard_size", "shorter_side", "longest_side", "index", "class_names"],
    "preview": ["num_images", "same", "output"],
    "check": ["memory_gib", "seconds"],
    "sweeps": ["sweep", "watch", "pictures"],
}
BASE = {
    **{name: ["run=run"] for name in ("evaluate", "predict", "export", "visualize", "probe", "features")},
    **{name: ["model=vit_mu4", "data=digits"] for name in ("survey", "preview", "check")},
    "summary": ["model=vit_mu4"],
    "pack": ["data=digits", "output=packed"],
    **{name: [] for name in ("sweeps", "runs")},
    "new": ["output=lab_of_a_walk"],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_no_value_of_another_command_is_taken_that_nobody_means(short_run, tmp_path, command):
    extra = {"predict": "images=a.png", "export": "format=safetensors", "features": "output=features"}
    odd = []
    for key in COMMANDS[command]:
        for number, value in enumerate(STRANGE):
            folder = tmp_path / f"{key}_{number}"
            folder.mkdir()
            if "run=run" in BASE[command]:
                shutil.copytree(short_run, folder / "run")
            Image.new("L", (32, 32)).save(folder / "a.png")
            words = [*BASE[command], *([extra[command]] if command in extra else []), f"{key}={value}"]
            words = list({word.partition("=")[0]: word for word in words}.values())
            odd.append(odd_answer(command, words, folder))
            shutil.rmtree(folder)
    assert [one for one in odd if one] == []


# -- damaged files


def cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def noise(path):
    path.write_bytes(np.random.RandomState(0).bytes(3000))


def linked_to_nothing(path):
    path.unlink()
    path.symlink_to("nowhere")


def a_folder(path):
    path.unlink()
    (path / "x").mkdir(parents=True)


def linked_to_itself(path):
    path.unlink()
    path.symlink_to(path.name)


def with_a_nul(path):
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 3] + b"\0" + content[len(content) // 3 + 1 :])


def doubled(path):
    path.write_bytes(path.read_bytes() * 2)


def in_utf_16(path):
    path.write_bytes(path.read_bytes().decode("utf-8", "replace").encode("utf-16"))


DAMAGES = {
    "empty": lambda path: path.write_bytes(b""),
    "json of another kind": lambda path: path.write_text('[1, {"a": null}]'),
    "a page": lambda path: path.write_text("<!DOCTYPE html><html><body>404</body></html>"),
    **{function.__name__: function for function in (cut, noise, linked_to_nothing, a_folder, linked_to_itself)},
    **{function.__name__: function for function in (with_a_nul, doubled, in_utf_16)},
}
OF_A_RUN = ["config.yaml", "metrics.csv", "provenance.json", "result.json", "train.log", ".identity"]
OF_A_RUN += ["checkpoints/best.ckpt", "checkpoints/latest.ckpt"]


@pytest.mark.parametrize("damage", DAMAGES)
def test_no_damaged_file_of_a_run_gives_a_traceback(short_run, tmp_path, damage):
    odd = []
    for number, name in enumerate(OF_A_RUN):
        for entry, *words in (
            ("train", "resume=run", "trainer.max_epochs=3"),
            ("evaluate", "run=run"),
            ("predict", "run=run", "images=a.png"),
            ("visualize", "run=run"),
            ("train", *SHORT[:-2], "hydra.run.dir=other", "model.pretrained=run"),
        ):
            folder = tmp_path / f"{number}_{entry}_{len(words)}"
            folder.mkdir()
            shutil.copytree(short_run, folder / "run")
            Image.new("L", (32, 32)).save(folder / "a.png")
            DAMAGES[damage](folder / "run" / name)
            odd.append(odd_answer(entry, words, folder))
            shutil.rmtree(folder)
    assert [f"{damage}: {one}" for one in odd if one] == []


def listing(folder):
    image_folder(folder / "img")
    rows = [f"img/train/{name}/{i}.png,{name}" for name in ("cat", "dog") for i in range(10)]
    (folder / "list.csv").write_text("\n".join(["path,label", *rows]))
    return folder / "list.csv", ["data=listing", "data.source.file=list.csv"]


def an_image(folder):
    image_folder(folder / "img")
    return folder / "img" / "train" / "cat" / "3.png", ["data=folder", "data.source.root=img"]


def arrays(folder):
    random = np.random.RandomState(0)
    np.savez(folder / "a.npz", images=random.randint(0, 255, (40, 8, 8, 3), dtype=np.uint8))
    np.savez(folder / "b.npz", labels=np.arange(40) % 2)
    words = ["data=arrays", "data.source.images.train=a.npz", "data.source.labels.train=b.npz"]
    return folder / "a.npz", [*words, "data.num_classes=2", "data.image_size=8"]


def labels(folder):
    _, words = arrays(folder)
    return folder / "b.npz", words


def shards(folder):
    for split, count in {"train": 40, "val": 8, "test": 8}.items():
        with tarfile.open(folder / f"{split}-000000.tar", "w") as tar:
            for i in range(count):
                file = io.BytesIO()
                Image.new("RGB", (8, 8), (i, 9 * (i % 2), 0)).save(file, "PNG")
                for suffix, content in (("png", file.getvalue()), ("cls", str(i % 2).encode())):
                    member = tarfile.TarInfo(f"{i:05d}.{suffix}")
                    member.size = len(content)
                    tar.addfile(member, io.BytesIO(content))
    return folder / "train-000000.tar", ["data=shards", "data.source.root=."]


def pairs(folder):
    (folder / "pairs.tsv").write_text("\n".join(["input\ttarget", *(f"a b {i}\tc {i}" for i in range(60))]))
    words = ["task=sequence", "model=transformer_mu", "data=text_pairs", "data.source.file=pairs.tsv"]
    return folder / "pairs.tsv", words


DATA = {function.__name__: function for function in (listing, an_image, arrays, labels, shards, pairs)}


@pytest.mark.parametrize("kind", DATA)
def test_no_damaged_file_of_data_gives_a_traceback(tmp_path, kind):
    odd = []
    for number, damage in enumerate(DAMAGES):
        folder = tmp_path / str(number)
        folder.mkdir()
        file, words = DATA[kind](folder)
        DAMAGES[damage](file)
        short = [word for word in SHORT if not word.startswith("data=")]
        keys = {word.partition("=")[0] for word in words}
        short = [word for word in short if word.partition("=")[0] not in keys]
        odd.append(odd_answer("train", [*short, *words, "global_batch_size=8"], folder))
        shutil.rmtree(folder)
    assert [f"{kind}: {one}" for one in odd if one] == []


def test_there_are_as_many_as_it_says():
    keys = set().union(*(keys_of(words) for words in SETTINGS.values()))
    assert len(keys) * len(STRANGE) + sum(map(len, COMMANDS.values())) * len(STRANGE) > 300
    assert len(DAMAGES) * (len(OF_A_RUN) + len(DATA)) > 100
