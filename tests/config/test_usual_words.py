"""Words of other frameworks are answered with the command that they mean, which the command then takes."""

import shlex

import pytest

from vitlab.commands import COMMANDS
from vitlab.config.composition import compose, initialize_hydra
from vitlab.config.keys import read_keys
from vitlab.config.usual_words import KEYS, MEANT, SPECIAL, check_usual_words
from vitlab.errors import ConfigError

TYPED = {
    "epochs=3": "trainer.max_epochs=3",
    "--epochs 3": "trainer.max_epochs=3",
    "--epochs=3": "trainer.max_epochs=3",
    "lr=1e-3": "optimizer.lr=1e-3",
    "--learning-rate 1e-3": "optimizer.lr=1e-3",
    "batch_size=128": "global_batch_size=128",
    "img_size=224": "data.image_size=224",
    "device=cpu": "trainer=cpu",
    "device=cuda": "trainer=gpu",
    "pretrained=true": "model.pretrained=published",
    "pretrained=run": "model.pretrained=run",
    "workers=4": "data.loading.num_workers=4",
    "wd=0.1": "optimizer.weight_decay=0.1",
    "gpus=2": "trainer=ddp trainer.devices=2",
    "fp16=true": "trainer.precision=16-mixed",
    "--amp": "trainer.precision=bf16-mixed",
    "steps=10": "trainer.max_epochs=-1 trainer.max_steps=10",
    "data_dir=photos": "data=folder data.source.root=photos",
    "checkpoint=run": "resume=run",
    "output_dir=here": "hydra.run.dir=here",
    "--model vit_ti4": "model=vit_ti4",
    "--data cifar10 --optimizer adamw": "data=cifar10 optimizer=adamw",
    "--global-batch-size=64": "global_batch_size=64",
    "--trainer.max_epochs 3": "trainer.max_epochs=3",
    "--compile": "compile=true",
    "data=.": "data=folder data.source.root=.",
    "--data .": "data=folder data.source.root=.",
    "data=folder root=photos": "data=folder data.source.root=photos",
    "wandb=false": "logger=none",
    "wandb=true": "logger=wandb",
    "ema=no": "callbacks=[default]",
    "mixup=0": "mixing=none",
    "mixup=0.4": "mixing=mixup mixing.mixup_alpha=0.4",
    "cutmix=false": "mixing=none",
    "gpu=false": "trainer=cpu",
    "amp=false": "trainer.precision=32-true",
    "pretrained=false": "model.pretrained=null",
    "patience=3": "callbacks=[default,early_stopping] callbacks.early_stopping.patience=3",
    "class_weights=true": "task.class_weights=balanced",
    "run=latest": "resume=latest",
}


def corrected(command, words):
    with pytest.raises(ConfigError) as refusal:
        check_usual_words(command, read_keys(command).kinds, words)
    return str(refusal.value).rsplit("; type: ", 1)[1]


@pytest.mark.parametrize(("word", "own"), TYPED.items())
def test_the_command_that_is_meant_composes(word, own):
    typed = shlex.split(corrected("train", ["seed=3", *word.split()]))
    assert typed[-len(own.split()) :] == own.split()
    assert "seed=3" in typed
    with initialize_hydra("train"):
        compose("train", [one for one in typed[typed.index("seed=3") :] if not one.startswith("resume")])


def test_all_words_are_corrected_at_once_and_others_are_kept():
    words = ["-m", "lr=1e-3,3e-4", "epochs=2", "name=my run", "seed=1"]
    assert corrected("train", words).endswith("-m optimizer.lr=1e-3,3e-4 trainer.max_epochs=2 'name=my run' seed=1")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_keeps_its_own_keys(command):
    known = read_keys(command).kinds
    check_usual_words(command, known, [f"{key}=1" for key in known])
    check_usual_words(
        command, known, ["--cfg", "job", "-m", "--help", "model.depth=3", "+trainer.x=1", "~callbacks.ema"]
    )


def test_predict_has_words_of_its_own():
    assert corrected("predict", ["checkpoint=run", "device=cpu", "input=a.png"]).endswith(
        "run=run device=cpu images=a.png"
    )


def test_a_command_that_is_proposed_lacks_nothing():
    assert corrected("predict", ["--image", "a.png"]).endswith("predict run=latest images=a.png")
    assert corrected("predict", ["--image", "a.png", "format=csv"]).endswith(
        "run=latest images=a.png output=predictions.csv"
    )
    assert corrected("evaluate", ["run=here", "--split", "val"]).endswith("run=here split=val")
    assert corrected("compare", ["a", "b", "--cfg", "job"]).endswith("'runs=[a,b]' --cfg job")
    assert corrected("train", ["help"]).endswith(" --help")


def test_no_word_means_two_keys():
    assert sum(len(words.split()) for words in KEYS.values()) == len(MEANT)
    assert not MEANT.keys() & SPECIAL.keys()


def test_the_sentence_a_user_reads(cli):
    run = cli("train", "epochs=3", exact=True, tiny=False)
    assert run.status == 2
    assert "ConfigError: epochs=3 is trainer.max_epochs=3; type: " in run.err
    assert run.err.strip().endswith("train.py trainer.max_epochs=3")
    below = cli("train", "trainer.epochs=3", exact=True, tiny=False)
    assert "did you mean trainer.max_epochs?" in below.err
