"""What is printed to be typed next works as it is printed: after every task, on data of ours and of the user's."""

import re
import shlex
from pathlib import Path

import coloured
import numpy as np
import pytest
from conftest import BARE, TINY, image_folder
from omegaconf import OmegaConf
from PIL import Image
from reading import ASKED, READER, SIZES, TOWERS, WRITER, write_numbers

from vitlab.config.home import CONF
from vitlab.config.stated import find_changed_values, find_encoder
from vitlab.data.loading.dataset import Split
from vitlab.data.pools.pool import ArrayPool
from vitlab.data.targets import OneClass
from vitlab.run.printing.next_steps import write_file

SHORT = ["trainer.max_epochs=-1", "trainer.max_steps=2", *BARE]
CPU = ["trainer=cpu", "trainer.precision=32-true", "logger=none", "global_batch_size=16"]
DIGITS = [*TINY, "data=digits"]
ENCODER = ["model.encoder.depth=1", "model.encoder.embed_dim=32", "model.encoder.num_heads=2"]
OF_TASKS = {  # what each is trained on within the package
    "classification": DIGITS,
    "sequence": WRITER,
    "answering": ASKED["single_stream"],
    "captioning": READER,
    "contrastive": TOWERS,
    "distillation": [*DIGITS, "task=distillation", "model=deit_ti16_distilled", "model.depth=1", "model.patch_size=8"],
    "linear_probe": [*DIGITS, "task=linear_probe", "optimizer=sgd"],
    "masked_autoencoding": [*DIGITS, "task=masked_autoencoding", "model=mae_xs4", *ENCODER, "model.decoder_depth=1"],
    "multilabel": [*TINY, "task=multilabel", "data=synthetic_multilabel", "data.source.num_samples=100"],
    "self_distillation": [*DIGITS, "task=self_distillation", "model=dino_xs4", *ENCODER, "crop=multi_crop"],
}
OF_TASKS["self_distillation"] += ["crop.train.small.image_size=16", "crop.train.num_small=2"]
PAIRS = ["task=sequence", "model=transformer_mu", *SIZES, "data=text_pairs", "data.source.file=my pairs.tsv"]
CAPTIONS = ["task=contrastive", *TOWERS[:7], "data=listing", "data.source.file=captions.csv"]
CAPTIONS += ["data.source.text_column=caption", "data.source.allow_two_labels=true"]
QUESTIONS = ["task=answering", "model=single_stream_xs8", *SIZES[:3], "crop=whole", "data=listing"]
QUESTIONS += ["data.source.file=questions.csv", "data.source.text_column=answer"]
QUESTIONS += ["data.source.question_column=question"]
LINES = ["task=captioning", "model=reader_xs8", *SIZES, "crop=whole", "data=listing", "data.source.file=lines.csv"]
OF_USERS = {
    "text pairs": PAIRS,
    "questions": QUESTIONS,
    "a folder": [*TINY, "data=folder", "data.source.root=my images"],
    "a folder without labels": [*OF_TASKS["masked_autoencoding"], "data=folder", "data.source.root=my images"],
    "captions": CAPTIONS,
    "texts": [*LINES, "data.source.text_column=caption"],
}


def own_data(folder):
    """A table and a folder of each kind, with names and texts that a shell and Hydra read as something else."""
    image_folder(folder / "my images", ("it's a cat", "$HOME"), count=20)
    coloured.draw(folder)
    coloured.ask(folder)
    coloured.draw(folder, ways=1, name="lines.csv")
    write_numbers(folder / "my pairs.tsv", 60)
    for name in ("my pairs.tsv", "questions.csv", "captions.csv"):
        text = (folder / name).read_text(encoding="utf-8")
        for plain, odd in {"nine": "${nine}", "Which colour?": '1e3, "a=b" [c]', "a red picture": "true: it's"}.items():
            text = text.replace(plain, odd if name.endswith("tsv") else '"{}"'.format(odd.replace('"', '""')))
        (folder / name).write_text(text, encoding="utf-8")


def printed(run):
    """The commands that a training prints, by what they do."""
    found = re.findall(r"^(evaluate|predict|fine-tune|report|go on) +(.*)$", run.out, re.M)
    names = [name for name, _ in found]
    assert names in (["evaluate", "predict", "report", "go on"], ["evaluate", "fine-tune", "report", "go on"])
    return dict(found)


def run_as_printed(cli, commands):
    """Run them one after the other, the trainings for a few steps."""
    for name, command in commands.items():
        assert not re.search("<[a-z]", command), command
        program, script, *words = shlex.split(command)
        assert program == "python"
        words += [*CPU, *SHORT] if name == "fine-tune" else []
        done = cli(Path(script).stem, *words, tiny=False)
        assert done.status == 0, (command, done.err)


def test_every_task_is_here():
    assert OF_TASKS.keys() == {file.stem for file in (CONF / "task").glob("[!_]*.yaml")}


@pytest.mark.slow
@pytest.mark.parametrize("task", OF_TASKS)
def test_commands_after_a_task_run_as_they_are_printed(cli, request, task):
    words = [*OF_TASKS[task], *CPU, *SHORT]
    if task == "distillation":
        words.append(f"teacher.pretrained={request.getfixturevalue('short_run')}")
    run = cli("train", *words, tiny=False, folder="my run")
    assert run.status == 0, run.err
    run_as_printed(cli, printed(run))


def trained(cli, folder, kind):
    own_data(folder)
    run = cli("train", *OF_USERS[kind], *CPU, *SHORT, tiny=False, folder="my run")
    assert run.status == 0, run.err
    return printed(run)


@pytest.mark.slow
@pytest.mark.parametrize("kind", OF_USERS)
def test_commands_after_a_run_on_ones_own_data_run_as_they_are_printed(cli, tmp_path, kind):
    run_as_printed(cli, trained(cli, tmp_path, kind))


@pytest.mark.parametrize("kind", ["text pairs", "questions"])
def test_a_prediction_is_printed_about_a_sample_of_the_data(cli, tmp_path, kind):
    run_as_printed(cli, {"predict": trained(cli, tmp_path, kind)["predict"]})


# -- what the words are made of


def test_a_fine_tuning_has_what_the_run_has_in_place_of_what_its_options_state():
    assert find_encoder("mae_xs4") == find_encoder("dino_xs4") == "vit_xs4"
    assert find_encoder("vit_xs4") is find_encoder("absent") is None
    own = OmegaConf.create({"patch_size": 4, "depth": 7, "embed_dim": "${...width}", "pool": "cls", "other": 1})
    cfg = OmegaConf.create({"width": 64, "model": {"encoder": own}})
    assert find_changed_values("model", "vit_xs4", cfg.model.encoder) == {"depth": 7, "embed_dim": 64}
    assert find_changed_values("model", "absent", own) == {}


def test_an_image_that_is_no_file_becomes_one(tmp_path):
    random = np.random.RandomState(0)
    for shape, suffix in {(4, 5): "png", (4, 5, 1): "png", (4, 5, 3): "png", (4, 5, 7): None}.items():
        pixels = random.randint(0, 255, (2, *shape), dtype=np.uint8)
        split = Split(ArrayPool(pixels, OneClass(np.zeros(2, int)), "some"), np.arange(2))
        file = write_file(split, [1], tmp_path)
        assert file == (suffix and str(tmp_path / f"test_image.{suffix}"))
        if file is not None:
            assert np.array_equal(np.asarray(Image.open(file)), pixels[1].squeeze())
    assert write_file(split, [], tmp_path) is None


@pytest.mark.slow
def test_a_run_that_kept_no_state_prints_no_command_that_needs_one(cli):
    bare = cli("train", *DIGITS, "trainer.fast_dev_run=true", folder="bare")
    assert bare.status == 0, bare.err
    assert not re.search(r"^(evaluate|predict|report|go on) ", bare.out, re.M)
    latest = cli("train", *DIGITS, *SHORT, "~callbacks.best_model", folder="latest")
    assert latest.status == 0, latest.err
    run_as_printed(cli, printed(latest))
