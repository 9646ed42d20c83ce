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
}


def corrected(command, words):
    with pytest.raises(ConfigError) as refusal:
        check_usual_words(command, read_keys(command).kinds, words)
    return str(refusal.value).rsplit("; type: ", 1)[1]


@pytest.mark.parametrize(("word", "own"), TYPED.items())
def test_the_command_that_is_meant_composes(word, own):
    typed = shlex.split(corrected("train", ["model=vit_mu4", *word.split()]))
    assert typed[-len(own.split()) :] == own.split()
    assert "model=vit_mu4" in typed
    with initialize_hydra("train"):
        compose("train", [one for one in typed[typed.index("model=vit_mu4") :] if not one.startswith("resume")])


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
