"""Every YAML in conf/ and experiments/ composes, resolves, and fits the constructor it names."""

import inspect
from pathlib import Path

import pytest
import yaml
from hydra import compose, initialize_config_dir
from hydra.core.hydra_config import HydraConfig
from hydra.utils import get_object
from omegaconf import OmegaConf

from vitlab.home import CONF, EXPERIMENTS
from vitlab.run.annotations import accepts, check_annotations
from vitlab.run.build import parts, plain
from vitlab.run.model import OF_THE_RUN

RUNTIME = {  # what no YAML can hold, by constructor
    "vitlab.data.ImageDataModule": {"augmentation", "mixing", "resolution"},
    "vitlab.tasks.Classification": {"model", "optimization", "schedule"},
    "vitlab.tasks.Distillation": {"model", "teacher", "optimization", "schedule"},
    "vitlab.tasks.LinearProbe": {"model", "optimization", "schedule"},
    "vitlab.tasks.MaskedAutoencoding": {"model", "optimization", "schedule"},
    "vitlab.tasks.MultilabelClassification": {"model", "optimization", "schedule"},
    "vitlab.optim.cosine": {"num_steps"},
    "vitlab.optim.constant": {"num_steps"},
    "vitlab.optim.linear": {"num_steps"},
    "vitlab.optim.rsqrt": {"num_steps"},
    "vitlab.optim.warmup_stable_decay": {"num_steps"},
    "vitlab.loggers.WeightsAndBiases": {"folder", "name", "group", "run_id", "run_config", "arguments"},
}
NEEDED = {
    "data=folder": ["data.source.root=somewhere", "data.num_classes=2"],
    "data=cifar10_folder": ["data.source.root=somewhere"],
    "data=shards": ["data.source.root=somewhere", "data.num_classes=2"],
    "data=listing": ["data.source.file=somewhere.csv", "data.num_classes=2"],
    "data=huggingface": ["data.source.name=somewhere", "data.num_classes=2"],
    "data=arrays": ["data.source.images.train=some.npz", "data.image_size=32", "data.num_classes=2"],
    "recipe=deit3_b16_imagenet_224": ["model.pretrained=RUN"],
    "recipe=mae_b16_imagenet_finetune": ["model.pretrained=RUN"],
    "recipe=mae_b16_imagenet_probe": ["model.pretrained=RUN"],
    "recipe=few_labels_mae": ["model.pretrained=RUN"],
    "recipe=digits_distilled": ["teacher.pretrained=RUN"],
}
GROUPS = sorted(path for path in CONF.iterdir() if path.is_dir() and path.name != "hydra")
OPTIONS = [f"{g.name}={file.stem}" for g in GROUPS for file in sorted(g.glob("*.yaml")) if file.stem[0] != "_"]
OPTIONS += [f"{g}={file.stem}" for g in ("recipe", "study") for file in sorted((EXPERIMENTS / g).glob("[!_]*.yaml"))]
FILES = [*CONF.rglob("*.yaml"), *EXPERIMENTS.rglob("*.yaml")]


def composed(*overrides):
    with initialize_config_dir(str(CONF), version_base="1.3"):
        cfg = compose("train", overrides=list(overrides), return_hydra_config=True)
    HydraConfig.instance().set_config(cfg)
    cfg = OmegaConf.masked_copy(cfg, [key for key in cfg if key != "hydra"])
    plain(cfg)  # every reference resolves, nothing is missing
    return cfg


@pytest.mark.parametrize("option", OPTIONS)
def test_every_option_binds_to_its_constructors(option):
    """Exactly the constructor's keywords: none unknown, none missing, and ours have no defaults to fall back on."""
    overrides = [option, *NEEDED.get(option, [])]
    if option.startswith("callbacks=") and not option.endswith("default"):
        overrides = [f"callbacks=[default,{option.split('=')[1]}]"]
    cfg = composed(*overrides)
    for key, node in parts(cfg, "cfg"):
        target = get_object(node["_target_"])
        function = target.__init__ if inspect.isclass(target) else target
        parameters = inspect.signature(function).parameters
        values = OmegaConf.to_container(node, resolve=True)
        if key.startswith(("cfg.model", "cfg.teacher")):
            for name in OF_THE_RUN:
                del values[name]
        check_annotations(target, OmegaConf.create(values), key)
        if node["_target_"].startswith("vitlab."):
            given = values.keys() | RUNTIME.get(node["_target_"], set())
            positional = {"self", "num_steps", "logits", "target"}  # what a schedule and a loss are functions of
            wanted = {name for name, p in parameters.items() if name not in positional and p.default is p.empty}
            assert wanted <= given, f"{key}: {node['_target_']} also wants {wanted - given}"
            assert all(p.kind == p.KEYWORD_ONLY for n, p in parameters.items() if n not in positional), key


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_every_yaml_says_in_its_first_line_what_it_is(path):
    first = path.read_text().splitlines()
    line = first[1] if first[0].startswith("# @package") else first[0]
    assert line.startswith("# ")
    assert len(line) > 10


MAPPINGS = {"splits", "images", "labels"}  # their keys are the user's


def leaves(node, prefix=()):
    for key, value in node.items():
        if isinstance(value, dict) and value and key not in MAPPINGS:
            yield from leaves(value, (*prefix, key))
        elif key not in ("defaults", "_partial_"):
            yield (*prefix, key)


def with_misspelt(node, path):
    """A copy of a nested dict in which the key at `path` is misspelt."""
    head, *rest = path
    return {
        (f"{key}x" if key == head and not rest else key): (
            with_misspelt(value, rest) if key == head and rest else value
        )
        for key, value in node.items()
    }


BUILDING = (
    "model",
    "data",
    "crop",
    "augmentation",
    "mixing",
    "resolution",
    "loss",
    "task",
    "optimizer",
    "schedule",
    "trainer",
)
SOURCES = [f for f in CONF.rglob("*.yaml") if f.parent.name in BUILDING]
KEYS = [(f, path) for f in SOURCES for path in leaves(yaml.safe_load(f.read_text()) or {})]


def test_a_misspelt_key_in_any_yaml_is_noticed(tmp_path):
    """Each key of each YAML that builds something, one at a time: the constructor, or a reference, must object."""
    quiet = []
    for file, path in KEYS:
        content = yaml.safe_load(file.read_text())
        if not notices(file, with_misspelt(content, path)):
            quiet.append((f"{file.parent.name}/{file.name}", ".".join(path)))
    assert not quiet


def notices(file: Path, content: dict) -> bool:
    """Whether a YAML with this content no longer binds: unknown, missing or mistyped keywords at any `_target_`."""
    base = {}
    for name in [d for d in content.get("defaults", []) if isinstance(d, str)]:
        base = OmegaConf.merge(base, placed(file, name))
    merged = OmegaConf.to_container(OmegaConf.merge(base, {k: v for k, v in content.items() if k != "defaults"}))
    if file.parent.name == "crop":
        return merged.keys() != {"train", "eval"} or not all(map(binds, merged.values()))
    if "_target_" not in merged and file.stem not in ("none", "full"):
        return True
    return any(not binds(node) for node in nodes(merged, file))


def with_bases(file: Path) -> dict:
    """A YAML with what it inherits."""
    content = yaml.safe_load(file.read_text())
    for name in content.pop("defaults", []):
        if isinstance(name, str):
            content = OmegaConf.to_container(OmegaConf.merge(placed(file, name), content))
    return content


def placed(file: Path, name: str) -> dict:
    """What an entry of a YAML's defaults brings to it: a file beside it, or, by its name@key, the same below that key.
    A file of another group (/group/name) goes elsewhere."""
    if name.startswith("/") or name.endswith("_open"):  # a plugin's, which takes any key
        return {}
    name, _, key = name.partition("@")
    content = with_bases(file.parent / f"{name}.yaml")
    return {key: content} if key else content


def nodes(merged, file):
    if isinstance(merged, dict):
        if "_target_" in merged:
            yield merged
        elif any(isinstance(v, dict | list) for v in merged.values()) or merged:
            yield {"_target_": None, **merged}
        for key, value in merged.items():
            if isinstance(value, dict) and key != "_target_" and key not in MAPPINGS:
                yield from nodes(value, file)
            elif isinstance(value, list):
                for item in value:
                    if isinstance(item, dict):
                        yield from nodes(item, file)


def binds(node) -> bool:
    if node.get("_target_") is None:
        return False
    try:
        target = get_object(node["_target_"])
    except Exception:
        return False
    parameters = inspect.signature(target.__init__ if inspect.isclass(target) else target).parameters
    given = {key for key in node if key not in ("_target_", "_partial_")}
    if node["_target_"].startswith("vitlab.models."):
        if not given >= set(OF_THE_RUN):
            return False
        given -= set(OF_THE_RUN)
    if not given <= parameters.keys():
        return False
    wanted = {
        n
        for n, p in parameters.items()
        if n not in ("self", "logits", "target")
        and p.default is p.empty
        and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)
    }
    return wanted <= given | RUNTIME.get(node["_target_"], set())


def test_annotations_refuse_other_types():
    assert accepts(int, 3)
    assert not accepts(int, "3")
    assert not accepts(int, True)
    assert not accepts(int, 3.5)
    assert accepts(float, 3)
    assert accepts(int | None, None)
    assert not accepts(float, None)
