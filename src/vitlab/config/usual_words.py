"""Answer the words that users of other frameworks type, such as epochs=3 or --lr 1e-3, with the command they mean."""

import re
import shlex
from collections.abc import Callable, Container, Iterable, Iterator

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
    "run": "checkpoint ckpt ckptpath model",
    "images": "image input source",
    "top_k": "topk",
    "logger": "log reportto",
}
MEANT = {word: key for key, words in KEYS.items() for word in words.split()}
TRUE = ("true", "True", "1", "yes", "")


def check_usual_words(command: str, known: Container[str], words: list[str]) -> None:
    """Raise ConfigError, with the whole command as it is written here, for words of a command line that are usual
    elsewhere and not among the `known` keys of this command."""
    replaced: dict[str, list[str]] = {}
    corrected: list[str] = []
    for word, key, value in iterate_pairs(words):
        own = translate_word(key, value, known) if key not in known else []
        replaced |= {word: own} if own else {}
        corrected += own or [word]
    if replaced:
        told = ", ".join(f"{word} is {' '.join(own)}" for word, own in replaced.items())
        raise ConfigError(f"{told}; type: {format_command(command)} {' '.join(map(quote_word, corrected))}")


def iterate_pairs(words: list[str]) -> Iterator[tuple[str, str, str]]:
    """Yield each word with its key and value: epochs=3, --epochs=3 and --epochs 3 have the key epochs. A word without
    a key that could be meant has the key ""."""
    rest = iter(range(len(words)))
    for place in rest:
        word = words[place]
        key, equals, value = word.partition("=")
        if not word.startswith("--"):
            yield word, key if equals else "", value
            continue
        following = words[place + 1] if place + 1 < len(words) else "-"
        if (
            not equals
            and not following.startswith("-")
            and "=" not in following
            and plain_word(key) in {*MEANT, *SPECIAL}
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
    return f"; did you mean {full}?" if full else suggest_name(name, known, prefix)


def quote_word(word: str) -> str:
    return shlex.quote(word) if "=" in word or word.startswith("-") else word


def translate_word(key: str, value: str, known: Container[str]) -> list[str]:
    """Return the overrides that a usual word stands for, in a command with these keys; [] for no usual word."""
    word = plain_word(key)
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
    return ["model.pretrained=published"] if full == "model.pretrained" and value in TRUE else [f"{full}={value}"]


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


SPECIAL: dict[str, Callable[[str], list[str]]] = {
    "device": device,
    "gpus": gpus,
    "numgpus": gpus,
    "gpu": lambda value: gpus("1") if value in ("0", *TRUE) else [],
    "fp16": lambda value: half("16-mixed", value),
    "amp": lambda value: half("bf16-mixed", value),
    "bf16": lambda value: half("bf16-mixed", value),
    "mixup": lambda value: ["mixing=mixup", *([f"mixing.mixup_alpha={value}"] if value not in TRUE else [])],
    "cutmix": lambda value: ["mixing=cutmix", *([f"mixing.cutmix_alpha={value}"] if value not in TRUE else [])],
    "ema": lambda value: ["callbacks=[default,ema]"],
    "wandb": lambda value: ["logger=wandb"],
}
