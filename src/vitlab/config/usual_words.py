"""Answer the words that users of other frameworks type, such as epochs=3 or --lr 1e-3, with the command they mean."""

import os
import re
import shlex
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from typing import Any

from vitlab.config.home import CONF
from vitlab.errors import ConfigError
from vitlab.invocation import format_command
from vitlab.spelling import suggest_name

KEYS = {  # usual words, without _ and -, and the key that each is here
    "trainer.max_epochs": "epochs maxepochs numepochs nepochs numtrainepochs ep",
    "trainer.max_steps": "steps maxsteps numsteps iterations maxiters iters",
    "optimizer.lr": "lr learningrate baselr",
    "optimizer.weight_decay": "wd weightdecay",
    "global_batch_size": "batchsize bs batch trainbatchsize",
    "data.device_batch_size": "perdevicebatchsize devicebatchsize perdevicetrainbatchsize microbatchsize",
    "data.image_size": "imgsize imgsz imagesize inputsize imgsizes res",
    "data.in_chans": "inchans inchannels channels",
    "data.num_classes": "numclasses nclasses classes nc numlabels",
    "data.source.root": "root datadir datapath dataroot path imgdir imagefolder traindir datasetdir",
    "data.loading.num_workers": "workers numworkers nworkers j dataloadernumworkers",
    "data": "dataset",
    "model": "arch architecture backbone modelname net",
    "model.patch_size": "patchsize patch",
    "model.depth": "depth layers numlayers",
    "model.embed_dim": "embeddim dim hiddensize width",
    "model.num_heads": "numheads heads nheads",
    "model.drop_rate": "drop dropout droprate",
    "model.drop_path_rate": "droppath droppathrate stochasticdepth",
    "model.pretrained": "pretrained weights initcheckpoint finetune",
    "optimizer": "opt optim",
    "schedule": "sched scheduler lrscheduler",
    "schedule.warmup_ratio": "warmupratio",
    "loss.label_smoothing": "labelsmoothing smoothing",
    "trainer.gradient_clip_val": "clipgrad gradclip clip maxgradnorm gradientclipval",
    "trainer.precision": "precision",
    "trainer.devices": "devices ngpus",
    "hydra.run.dir": "outputdir outdir output savedir logdir workdir project",
    "run": "checkpoint ckpt ckptpath model run",
    "images": "image input source",
    "top_k": "topk",
    "logger": "log reportto",
}
MEANT = {word: key for key, words in KEYS.items() for word in words.split()}
TRUE = ("true", "True", "1", "yes", "")
FALSE = ("false", "False", "0", "no", "off", "none", "None")
VALUED = ("--cfg", "-c", "--package", "-p", "--config-dir", "-cd", "--config-name", "-cn")  # flags before a value
TABLES = ("csv", "jsonl", "parquet")


def check_usual_words(command: str, known: Mapping[str, Any], words: list[str]) -> None:
    """Raise ConfigError, with the whole command as it is written here, for words of a command line that are usual
    elsewhere and not among the `known` keys of this command."""
    pairs = list(iterate_pairs(words, known))
    if command == "compare" and (runs := [word for word, key, _ in pairs if key == ""]):
        pairs = [(" ".join(runs), "", ",".join(runs)), *(pair for pair in pairs if pair[1] != "")]
    meant = [correct_word(command, *pair, known) for pair in pairs]
    chosen = {key for (_, key, _), own in zip(pairs, meant, strict=True) if not own}
    replaced: dict[str, list[str]] = {}
    corrected: list[str] = []
    for (word, _, _), own in zip(pairs, meant, strict=True):
        own = [one for one in own if len(own) == 1 or one.partition("=")[0] not in chosen]
        replaced |= {word: own} if own else {}
        corrected += own or [word]
    if known.get("run") is str and not any(word.startswith("run=") for word in corrected):
        corrected.insert(0, "run=latest")
    if replaced:
        told = ", ".join(f"{word} is {' '.join(own)}" for word, own in replaced.items())
        raise ConfigError(f"{told}; type: {format_command(command)} {' '.join(map(quote_word, corrected))}")


def correct_word(command: str, word: str, key: str, value: str, known: Mapping[str, Any]) -> list[str]:
    """Return the overrides that a word of a command line stands for; [] for one that may stand as it is."""
    if not key:
        if command == "compare":
            return [f"runs=[{value}]"]
        return ["--help"] if word == "help" else []
    name = format_key(key)
    if name == "data" and "data" in known and os.path.isdir(value) and not (CONF / "data" / f"{value}.yaml").exists():
        return ["data=folder", f"data.source.root={value}"]
    if name.partition(".")[0] in known:
        return [f"{name}={value or 'true'}"] if key.startswith("--") else []
    return translate_word(key, value, known)


def format_key(key: str) -> str:
    """Return a key as it is written here, without the dashes of a flag: global_batch_size for --global-batch-size."""
    return key[2:].replace("-", "_") if key.startswith("--") else key


def iterate_pairs(words: list[str], known: Container[str]) -> Iterator[tuple[str, str, str]]:
    """Yield each word with its key and value: epochs=3, --epochs=3 and --epochs 3 have the key epochs. A word without
    a key has the key "", and a flag of ours, or its value, "-"."""
    rest = iter(range(len(words)))
    for place in rest:
        word = words[place]
        key, equals, value = word.partition("=")
        if not word.startswith("--"):
            flag = word.startswith(("-", "~")) or (place > 0 and words[place - 1] in VALUED)
            yield word, key if equals else "-" if flag else "", value
            continue
        following = words[place + 1] if place + 1 < len(words) else "-"
        if (
            not equals
            and not following.startswith("-")
            and "=" not in following
            and (plain_word(key) in {*MEANT, *SPECIAL} or format_key(key).partition(".")[0] in known)
        ):
            next(rest)
            yield f"{word} {following}", key, following
        else:
            yield word, key, value


def plain_word(key: str) -> str:
    return re.sub(r"[_-]", "", key).lower()


def suggest_key(name: str, known: Iterable[str], prefix: str = "") -> str:
    """Return the end of an error message, as `suggest_name`, for a word that may be usual elsewhere."""
    full = MEANT.get(plain_word(name))
    return f"; did you mean {full}?" if full and full != name else suggest_name(name, known, prefix)


def quote_word(word: str) -> str:
    return shlex.quote(word) if "=" in word or word.startswith("-") else word


def translate_word(key: str, value: str, known: Container[str]) -> list[str]:
    """Return the overrides that a usual word stands for, in a command with these keys; [] for no usual word."""
    word = plain_word(key)
    if word == "format" and "sort_into" in known and value in TABLES:
        return [f"output=predictions.{value}"]
    if word in SPECIAL:
        return SPECIAL[word](value) if "resume" in known else []
    full = MEANT.get(word, "")
    full = "resume" if full == "run" and "resume" in known else full
    if full.partition(".")[0] not in known and not full.startswith("hydra."):
        return []
    if full == "trainer.max_steps":
        return ["trainer.max_epochs=-1", f"trainer.max_steps={value}"]
    if full == "data.source.root":
        return ["data=folder", f"data.source.root={value}"]
    if full == "model.pretrained" and value in (*TRUE, *FALSE):
        value = "published" if value in TRUE else "null"
    return [f"{full}={value}"]


def device(value: str) -> list[str]:
    if value in ("cpu", "gpu", "cuda", "cuda:0"):
        return [f"trainer={'cpu' if value == 'cpu' else 'gpu'}"]
    return ["trainer=gpu", f"trainer.accelerator={value}"] if value == "mps" else []


def gpus(value: str) -> list[str]:
    if not value.isdecimal():
        return []
    few = {"0": ["trainer=cpu"], "1": ["trainer=gpu"]}
    return few.get(value, ["trainer=ddp", f"trainer.devices={value}"])


def half(kind: str, value: str) -> list[str]:
    return [f"trainer.precision={kind if value in TRUE else '32-true'}"]


def mix(kind: str, value: str) -> list[str]:
    if value in FALSE:
        return ["mixing=none"]
    return [f"mixing={kind}", *([f"mixing.{kind}_alpha={value}"] if value not in TRUE else [])]


SPECIAL: dict[str, Callable[[str], list[str]]] = {
    "device": device,
    "gpus": gpus,
    "numgpus": gpus,
    "gpu": lambda value: gpus("1") if value in ("0", *TRUE) else gpus("0") if value in FALSE else [],
    "fp16": lambda value: half("16-mixed", value),
    "amp": lambda value: half("bf16-mixed", value),
    "bf16": lambda value: half("bf16-mixed", value),
    "mixup": lambda value: mix("mixup", value),
    "cutmix": lambda value: mix("cutmix", value),
    "ema": lambda value: [f"callbacks=[{'default' if value in FALSE else 'default,ema'}]"],
    "wandb": lambda value: [f"logger={'none' if value in FALSE else 'wandb'}"],
    "patience": lambda value: ["callbacks=[default,early_stopping]", f"callbacks.early_stopping.patience={value}"],
    "classweights": lambda value: [f"task.class_weights={'null' if value in FALSE else 'balanced'}"],
}
