"""Every YAML in conf/ and experiments/ composes, resolves, and fits the constructor it names."""

import functools
import itertools
import re
import shlex

import pytest
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.utils import get_object
from omegaconf import OmegaConf

from vitlab.config.annotations import accepts, check_node, check_value, convert_to_text, keywords
from vitlab.config.build import find_nodes
from vitlab.config.composition import compose, initialize_hydra
from vitlab.config.home import CONF, EXPERIMENTS
from vitlab.config.nodes import resolve_config
from vitlab.errors import ConfigError
from vitlab.run.building.model import OF_THE_RUN

RUNTIME = {  # what no YAML can hold, by the room of the constructor
    "vitlab.tasks.": {"model", "teacher", "vocabulary", "optimization", "schedule"},
    "vitlab.optim.": {"num_steps", "params"},
    "vitlab.losses.": {"logits", "target"},
    "torch.optim.": {"params"},
    "timm.optim.": {"params"},
    "vitlab.sweeps.": {"sweep", "modules"},
    "vitlab.loggers.": {"folder", "first_step", "name", "group", "run_id", "run_config", "arguments"},
}
FITTING = ["crop.train.scale=[0.5,1]", "crop.train.flip_rate=0", "crop.train.interpolation=bicubic"]
OPEN = ["data.num_classes=2", "data.in_chans=3", "data.image_size=32", "global_batch_size=8", *FITTING]
MEASURED = ["trainer.precision=32-true"]
TOKENS = ["data.vocab_size=13", "data.max_length=6", "data.input_vocab_size=33", "data.input_max_length=8"]
NEEDED = {
    "crop=fitting": FITTING,
    "data=folder": ["data.source.root=somewhere", *OPEN],
    "data=cifar10_folder": ["data.source.root=somewhere"],
    "data=shards": ["data.source.root=somewhere", "data.num_classes=2"],
    "data=listing": ["data.source.file=somewhere.csv", *OPEN],
    "data=huggingface": ["data.source.name=somewhere", "data.num_classes=2"],
    "data=digit_lines": ["data.num_classes=2"],
    "data=digit_sums": ["data.num_classes=2"],
    "data=digit_questions": ["data.num_classes=2"],
    "data=digit_scenes": ["data.num_classes=2"],
    "data=cifar10_scenes": ["data.num_classes=2"],
    "task=contrastive": ["data=digit_scenes", "model=clip_xs8", "data.vocab_size=13", "data.max_length=13"],
    "task=answering": ["data=digit_questions", "model=single_stream_xs8", "data.vocab_size=33"],
    "model=single_stream_xs8": ["data.vocab_size=13", "data.max_length=3", "data.input_max_length=8"],
    "model=asked_reader_xs8": ["data.vocab_size=13", "data.max_length=3", "data.input_max_length=8"],
    "recipe=digit_questions": ["data.vocab_size=33"],
    "recipe=digit_questions_reader": ["data.vocab_size=33"],
    "recipe=digits_contrastive": ["data.vocab_size=26", "data.max_length=7"],
    "task=captioning": ["data.vocab_size=13", "data.max_length=13"],
    "model=clip_b16": ["data.vocab_size=13", "data.max_length=13"],
    "model=clip_xs8": ["data.vocab_size=13", "data.max_length=13"],
    "model=siglip_b16": ["data.vocab_size=13", "data.max_length=13"],
    "model=reader_xs8": ["data.vocab_size=13", "data.max_length=13"],
    "data=number_words": ["model=transformer_mu", "task=sequence", *TOKENS],
    "data=text_pairs": ["data.source.file=some.tsv", "model=transformer_mu", "task=sequence", *TOKENS, *OPEN[3:4]],
    "model=transformer_mu": ["data=number_words", "task=sequence", *TOKENS],
    "task=sequence": ["model=transformer_mu", "data=number_words", *TOKENS],
    "data=arrays": ["data.source.images.train=some.npz", "data.image_size=32", "data.num_classes=2"],
    "recipe=deit3_b16_imagenet_224": ["model.pretrained=RUN"],
    "recipe=mae_b16_imagenet_finetune": ["model.pretrained=RUN"],
    "recipe=mae_b16_imagenet_probe": ["model.pretrained=RUN"],
    "recipe=few_labels_mae": ["model.pretrained=RUN"],
    "recipe=digit_lines": ["data.vocab_size=13"],
    "recipe=number_words": TOKENS,
    "recipe=text_pairs": ["data.source.file=numbers.tsv", *TOKENS],
    **dict.fromkeys(("study=attention_scale", "study=causal_mask", "study=text_positions"), TOKENS),
    "recipe=digits_distilled": ["teacher.pretrained=RUN"],
    "recipe=digits_small": ["teacher.pretrained=RUN"],
}
GROUPS = sorted(path for path in CONF.iterdir() if path.is_dir() and path.name != "hydra")
OPTIONS = {g.name: [f"{g.name}={file.stem}" for file in sorted(g.glob("[!_]*.yaml"))] for g in GROUPS}
OPTIONS["callbacks"] = [f"callbacks=[default,{option.partition('=')[2]}]" for option in OPTIONS["callbacks"][1:]]
OPTIONS["recipe"], OPTIONS["study"] = (
    [f"{g}={file.stem}" for file in sorted((EXPERIMENTS / g).glob("[!_]*.yaml"))] for g in ("recipe", "study")
)
assert NEEDED.keys() <= {option for options in OPTIONS.values() for option in options}
OPTIONS["loss"].remove("loss=none")  # which tasks with a loss of their own choose
CHOOSING = ("task", "recipe", "study")  # options that choose those of other groups: one of them at a time
OWN = {  # options that need one of another group
    option
    for group, other in (("model", "data="), ("data", "model="))
    for option in OPTIONS[group]
    if any(word.startswith(other) for word in NEEDED.get(option, []))
}
TOGETHER = itertools.zip_longest(
    *[[o for o in options if o not in OWN] for group, options in OPTIONS.items() if group not in CHOOSING]
)
CHOICES = [[option] for option in (*sorted(OWN), *(o for group in CHOOSING for o in OPTIONS[group]))]
CHOICES += [[option for option in options if option] for options in TOGETHER]
FILES = [*CONF.rglob("*.yaml"), *EXPERIMENTS.rglob("*.yaml")]


def runtime(target):
    """What a constructor may be given by the run."""
    return set().union(*(names for room, names in RUNTIME.items() if target.startswith(room)))


def composed(*overrides):
    cfg = unresolved("train", *overrides)
    resolve_config(cfg)  # every reference resolves, nothing is missing
    return cfg


@functools.cache
def laid_out(command, *overrides):
    """A composition takes a fifth of a second, and several tests look at the same."""
    with initialize_hydra(command):
        return compose(command, overrides).cfg


def unresolved(command, *overrides):
    cfg = laid_out(command, *overrides).copy()
    HydraConfig.instance().set_config(cfg)
    return OmegaConf.masked_copy(cfg, [key for key in cfg if key != "hydra"])


@pytest.mark.parametrize("options", CHOICES, ids=" ".join)
def test_every_option_binds_to_its_constructors(options):
    """Exactly the constructor's keywords: none unknown, none missing, and ours have no defaults to fall back on."""
    cfg = composed(*options, *[value for option in options for value in NEEDED.get(option, [])], *MEASURED)
    for key, node in find_nodes(resolve_config(cfg), "cfg"):
        target = get_object(node["_target_"])
        parameters = keywords(target)
        values = dict(node)
        if key.startswith(("cfg.model", "cfg.teacher")):
            for name in OF_THE_RUN:
                values.pop(name, None)
        check_node(target, values, key)
        constructor = target.__init__ if isinstance(target, type) else target
        if constructor.__module__.startswith("vitlab."):
            given = values.keys() | runtime(node["_target_"])
            positional = {"num_steps", "logits", "target"}  # what a schedule and a loss are functions of
            wanted = {name for name, p in parameters.items() if name not in positional and p.default is p.empty}
            assert wanted <= given, f"{key}: {node['_target_']} also wants {wanted - given}"
            assert all(p.kind == p.KEYWORD_ONLY for n, p in parameters.items() if n not in positional), key


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_every_yaml_says_in_its_first_line_what_it_is(path):
    first = path.read_text().splitlines()
    line = first[1] if first[0].startswith("# @package") else first[0]
    assert line.startswith("# ")
    assert len(line) > 10


@pytest.mark.parametrize(
    "names", [["two", 3], ["a, b", 3], ["1", 2], ["null", 3.5], ["it's", True], ['"', 1], ["a]", 1], ["\\", 1]]
)
def test_the_advice_to_quote_gives_the_texts_that_were_meant(names):
    with pytest.raises(ConfigError, match="; quote it: ") as refusal:
        check_value(list[str], names, "labels")
    (word,) = shlex.split(str(refusal.value).partition("; quote it: ")[2])
    assert OverridesParser.create().parse_override(word).value() == convert_to_text(names)


def test_a_number_of_the_environment_is_text_until_it_is_decoded(monkeypatch):
    monkeypatch.setenv("RATE", "0.003")
    with pytest.raises(ConfigError, match=r"lr 0.003 is not a number, but text; .*'lr=") as refusal:
        check_value(float, "0.003", "lr")
    word = re.search("'(.*)'", str(refusal.value))[1].replace("NAME", "RATE")
    assert OmegaConf.create({"lr": OverridesParser.create().parse_override(word).value()}).lr == 0.003


def test_annotations_refuse_other_types():
    assert accepts(int, 3)
    assert not accepts(int, "3")
    assert not accepts(int, True)
    assert not accepts(int, 3.5)
    assert accepts(float, 3)
    assert accepts(int | None, None)
    assert not accepts(float, None)
