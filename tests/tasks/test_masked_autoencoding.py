"""Masked autoencoding: whole runs through the entries, and what of a run is a fixed figure."""

import json
from pathlib import Path

import pytest
import torch
from conftest import BARE, evaluated
from sklearn.datasets import load_digits
from test_resume import Killed, same_tensors, states

from vitlab.checkpoints import file
from vitlab.data.batches.batch import Batch, View
from vitlab.layers import patchify
from vitlab.run.inference.saved_run import SavedRun
from vitlab.tasks import MaskedAutoencoding

SIZES = {"embed_dim": 32, "depth": 2, "num_heads": 2}
ENCODER = [f"model.encoder.{key}={value}" for key, value in SIZES.items()]
MODEL = ["model=mae_xs4", *ENCODER, "model.decoder_dim=24", "model.decoder_depth=1", "model.decoder_heads=2"]
QUIET = [
    "trainer=cpu",
    "trainer.precision=32-true",
    "logger=none",
    "data.loading.num_workers=0",
    "global_batch_size=128",
]
MAE = [*MODEL, *QUIET, "task=masked_autoencoding"]
BARE_MAE = [*MAE, *BARE, "~callbacks.reconstruction"]
VIT = ["model=vit_xs4", *[f"model.{key}={value}" for key, value in SIZES.items()], *QUIET, *BARE, "trainer.max_steps=1"]


@pytest.fixture
def run(cli):
    """A finished run of two epochs on the digits, all callbacks on."""
    done = cli("train", *MAE, "trainer.max_epochs=2", folder="mae", tiny=False)
    assert done.status == 0, done.err
    return done


@pytest.mark.ci
@pytest.mark.slow
def test_a_run_trains_is_tested_and_looked_at_and_its_encoder_goes_on(cli, run):
    result = json.loads((run.folder / "result.json").read_text())
    assert result["monitor"] == "val/loss"
    best = file.read(run.folder / "checkpoints" / "best.ckpt")
    assert result["score"] == best["score"]["val/loss"] == min(result["score"], result["last"]["val/loss"])
    pictures = {path.stem for path in (run.folder / "pictures").iterdir()}
    assert pictures >= {"reconstruction", "training_batch", "attention_1", "position_similarity", "embedding_filters"}
    assert not list(run.folder.glob("*_predictions.csv"))
    assert "model.pretrained=mae" in run.out
    assert "src/predict.py" not in run.out

    scored = cli("evaluate", "run=mae", "trainer.accelerator=cpu")
    assert scored.status == 0, scored.err
    assert evaluated(Path("mae"))["test/loss"] == result["test"]["test/loss"]
    assert cli("visualize", "run=mae", "views=[position,filters]", "output=views").status == 0
    for entry, options, words in (
        ("predict", ["images=."], "was trained without classes"),
        ("export", ["output=out"], "the run's model is MaskedAutoencoder"),
    ):
        refused = cli(entry, "run=mae", *options)
        assert refused.status == 2, refused.err
        assert words in refused.err.strip().splitlines()[-1]

    tuned = cli("train", *VIT, "model.pretrained=mae", "optimizer.lr=1e-12", folder="tuned", tiny=False)
    assert tuned.status == 0, tuned.err
    theirs, ours = best["state_dict"], file.read(tuned.folder / "checkpoints" / "best.ckpt")["state_dict"]
    arrived = [name for name in ours if not name.startswith("model.head.")]
    for name in arrived:
        source = theirs[name.replace("model.", "model.encoder.", 1)]
        torch.testing.assert_close(ours[name], source, atol=1e-6, rtol=0)
    lines = (tuned.folder / "pretrained.csv").read_text().splitlines()[1:]
    assert sum(",copied," in line for line in lines) == len(arrived)
    assert {line.split(",")[0] for line in lines if ",left over," in line} == {
        name.removeprefix("model.") for name in theirs if not name.startswith("model.encoder.")
    }
    assert all("of pre-training" in line for line in lines if ",left over," in line)

    again = cli("train", *BARE_MAE, "trainer.max_steps=1", "model.pretrained=mae", folder="again", tiny=False)
    assert again.status == 0, again.err
    assert "initialised anew" not in again.out

    larger = [*VIT, "model.pretrained=mae", "model.pool=mean", "data.image_size=16"]
    other = cli("train", *larger, folder="larger", tiny=False)
    assert other.status == 0, other.err
    report = (other.folder / "pretrained.csv").read_text()
    assert "grid 8x8 -> 4x4" in report
    assert "a norm after mean pooling" in report


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([*VIT, "task=masked_autoencoding"], "task: the model is a VisionTransformer, which predicts no patches"),
        ([*MODEL, *QUIET], "task: the model is a MaskedAutoencoder, which has no head"),
        ([*MAE, "task.mask_ratio=1.0"], "mask_ratio 1.0 is not a number of at least 0 and below 1"),
        ([*MAE, "model.patch_size=8"], "model: patch_size is 8, but the encoder's is 4"),
        ([*MAE, "model.encoder.pretrained=mae"], "model.encoder.pretrained is not used"),
        ([*MAE, "model.encoder.image_size=16"], "model.encoder.image_size is 16, but data.image_size is 32"),
        ([*MAE, "monitor=val/acc1"], "monitor 'val/acc1'"),
        ([*MAE, "optimizer.trained=head"], "needs a model with a head"),
        ([*MAE, "crop=native"], "images of one size"),
        ([*VIT, "callbacks=[default,reconstruction]"], "it needs task=masked_autoencoding"),
    ],
)
def test_what_is_refused_in_one_sentence(cli, options, words):
    refused = cli("train", *options, tiny=False)
    assert refused.status == 2, refused.err
    assert words in refused.err.strip().splitlines()[-1]


@pytest.mark.ci
@pytest.mark.slow
def test_killed_and_resumed_is_bit_exact(cli, monkeypatch):
    options = [*BARE_MAE, "trainer.max_epochs=2", "model.encoder.drop_path_rate=0.1"]
    options += [
        "data.split.labels_per_class=26",
        "global_batch_size=32",
        "data.device_batch_size=16",
    ]  # 8 steps an epoch
    options += ["callbacks.latest_state.every_n_steps=2", "callbacks=[default,ema]", "callbacks.ema.decay=0.8"]
    assert cli("train", *options, folder="whole", tiny=False).status == 0
    step, calls = MaskedAutoencoding.training_step, []

    def counted(self, batch, batch_idx):
        calls.append(batch_idx)
        if len(calls) > 11:
            raise Killed
        return step(self, batch, batch_idx)

    with monkeypatch.context() as patch:
        patch.setattr(MaskedAutoencoding, "training_step", counted)
        with pytest.raises(Killed):
            cli("train", *options, folder="killed", tiny=False)
    assert cli("train", "resume=killed", tiny=False).status == 0
    assert same_tensors(states(Path("whole")), states(Path("killed")))


# -- the task itself


@pytest.fixture
def task(cli):
    assert cli("train", *BARE_MAE, "trainer.max_steps=1", folder="one", tiny=False).status == 0
    return SavedRun.open("one").task().eval()


def digits(size=32):
    images = torch.tensor(load_digits().images, dtype=torch.float32)[:, None] / 16
    images = torch.nn.functional.interpolate(images, size=size, mode="bilinear")
    return (images - images.mean()) / images.std()


def batch_of(images, index):
    h = images.shape[-1] // 4
    return Batch((View(patchify(images[index], 4), (h, h)),), torch.zeros(len(index)), index)


def test_the_loss_of_an_image_in_evaluation_does_not_depend_on_its_batch(task):
    images, index = digits(), torch.arange(40)
    with torch.inference_mode():
        whole, outputs = task.evaluate_batch(batch_of(images, index), "val")
        alone = torch.cat([task.evaluate_batch(batch_of(images, index[i : i + 1]), "val")[0] for i in range(40)])
        order = torch.randperm(40)
        shuffled = task.evaluate_batch(batch_of(images, order), "val")[0]
    assert outputs == {}
    torch.testing.assert_close(alone, whole, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(shuffled, whole[order], atol=1e-5, rtol=1e-5)
    noise = task.draw_noise(batch_of(images, index))
    assert len({tuple(row.argsort().tolist()) for row in noise}) == 40  # each image hides others
    task.seed = 1
    assert not torch.equal(task.draw_noise(batch_of(images, index)), noise)


def test_seen_patches_are_given_back_and_hidden_ones_are_predicted(task):
    batch = batch_of(digits(), torch.arange(5))
    with torch.inference_mode():
        patches, mask = task.reconstruct(batch)
        loss, _ = task.evaluate_batch(batch, "val")
    assert torch.equal(patches[~mask], batch.view.inputs[~mask])
    assert mask.sum(dim=1).tolist() == [48] * 5
    restored = (batch.view.inputs.var(dim=2) + 1e-6)[..., None]  # of the target: its deviation is the true patch's
    errors = ((patches - batch.view.inputs) ** 2 / restored).mean(dim=2)
    torch.testing.assert_close(errors.sum(dim=1) / 48, loss, atol=1e-4, rtol=1e-4)
