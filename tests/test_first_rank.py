"""What the first of several ranks does alone (views, reports, pictures) leaves none of them waiting: runs by two and
three processes come to their end, and draw what one process draws."""

import numpy as np
import pytest
from conftest import FEW, TINY
from many_runs import train_all
from PIL import Image
from test_ddp import REGIMES
from test_fully_sharded import OF_ANOTHER_SIZE, OPTIONS, without_trainer

SHORT = ["trainer.accelerator=cpu", "trainer.max_steps=4", "+trainer.val_check_interval=2"]
CALLBACKS = {
    "classification": [],
    "callbacks": ["callbacks=[default,ema,early_stopping,lr_monitor,feature_probe]", "callbacks.feature_probe.k=5"],
}
VIEWS = {"attention_rollout", "attention_distance", "position_similarity", "embedding_filters", "attention_1"}
RELEVANCE = {*VIEWS, "relevance"}
DRAWN = {  # what the first rank draws of the model of each regime
    "classification": RELEVANCE,
    "callbacks": RELEVANCE,
    "distillation": RELEVANCE,
    "two_tokens": VIEWS,
    "compile": RELEVANCE,
    "multilabel": RELEVANCE,
    "linear_probe": RELEVANCE,
    "probing_while_training": RELEVANCE,
    "unfreezing": RELEVANCE,
    "activation_checkpointing": RELEVANCE,
    "swa": RELEVANCE,
    "masked_autoencoding": {*VIEWS, "reconstruction"},
    "self_distillation": VIEWS,
    "contrastive": VIEWS,
    "captioning": set(),  # of images of several sizes
    "answering": set(),
    "sequence": set(),
}


def words_of(regime, request):
    """The smallest run of a regime that draws all its pictures."""
    words = [word for word in TINY if regime != "sequence" or "loading" not in word]  # texts have no workers
    words += [] if regime in OF_ANOTHER_SIZE else FEW
    words += (REGIMES | OPTIONS | CALLBACKS)[regime]
    taught = any("RUN" in word for word in words)
    teacher = str(request.getfixturevalue("digits_run")) if taught else ""
    return [*(word.replace("RUN", teacher) for word in words), "callbacks.model_views.num_images=1", *SHORT]


def by_several(words, strategy, count):
    own = [f"trainer={strategy}", f"trainer.devices={count}", "trainer.strategy.timeout_minutes=1"]
    copies = [f"trainer.strategy.copies={count}"] if strategy == "hsdp" else []
    return [*without_trainer(words), *own, *copies, f"global_batch_size={64 if count == 2 else 66}"]


def pictures(folder):
    return {path.stem: np.asarray(Image.open(path).convert("L"), dtype=int) for path in folder.glob("pictures/*.png")}


@pytest.mark.slow
@pytest.mark.parametrize(("regime", "count"), [("classification", 2), ("masked_autoencoding", 3)])
def test_the_first_rank_draws_a_sharded_model_as_one_process_draws_a_whole_one(cli, request, tmp_path, regime, count):
    words = words_of(regime, request)
    runs = {"sharded": by_several(words, "fsdp", count)}
    assert train_all(tmp_path, runs, count) == {"sharded": 0}, (tmp_path / "log").read_text()[-4000:]
    assert (tmp_path / "sharded" / "result.json").is_file()
    one = cli("train", *words, f"global_batch_size={64 if count == 2 else 66}", folder="one", tiny=False, pictures=True)
    assert one.status == 0, one.err
    found, wanted = pictures(tmp_path / "sharded"), pictures(one.folder)
    assert found.keys() == wanted.keys() >= DRAWN[regime]
    for name in DRAWN[regime]:  # but for what rounding moves by a pixel
        assert found[name].shape == wanted[name].shape, name
        assert np.abs(found[name] - wanted[name]).mean() < 1, name


@pytest.mark.exhaustive
@pytest.mark.timeout(2400)
@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("strategy", ["fsdp", "hsdp", "ddp"])
def test_every_task_and_callback_comes_to_its_end(cli, request, tmp_path, strategy, count):
    regimes = [name for name in DRAWN if strategy == "ddp" or name != "linear_probe"]
    runs = {name: by_several(words_of(name, request), strategy, count) for name in regimes}
    statuses = train_all(tmp_path, runs, count, seconds=2000)
    assert statuses == dict.fromkeys(regimes, 0), (tmp_path / "log").read_text()[-4000:]
    assert "Traceback" not in (tmp_path / "log").read_text()
    for name in regimes:
        assert (tmp_path / name / "result.json").is_file(), name
        assert pictures(tmp_path / name).keys() >= DRAWN[name], name
        again = cli("evaluate", f"run={name}", f"output=again_{name}")
        assert again.status == 0, (name, again.err)
