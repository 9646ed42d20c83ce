"""Contrast: metrics of a whole split whatever its batches, classes by their names, what is kept and refused."""

from contextlib import nullcontext
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from conftest import vit_options
from one_process import one_process
from texts import OPTIONS
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from vitlab.data.batches.batch import Batch, View
from vitlab.data.targets import Captions, SeveralTexts, Texts
from vitlab.distributed.sharding import unshard_tensor
from vitlab.errors import ConfigError, DataError
from vitlab.layers import patchify
from vitlab.losses import Pairs, softmax_contrastive
from vitlab.models import ImageTextModel, TextEncoder, VisionTransformer
from vitlab.models.image_text_model import MOST, ImageTextFeatures
from vitlab.optim import Optimization, constant
from vitlab.tasks import Contrastive
from vitlab.tasks.retrieval import Retrieval, RetrievalSamples
from vitlab.vocabulary import WordVocabulary

WORDS = WordVocabulary(["a", "cat", "dog", "left", "of", "right", "the", "two"])


def model_of(**changes):
    torch.manual_seed(0)
    text = TextEncoder(causal=True, **OPTIONS | {"norm_first": True, "position": "learned_1d"})
    options = {"feature_dim": 12, "text_pool": "end", "project_images": True, "text_bias": False}
    options |= {"scale": 10.0, "bias": None}
    return ImageTextModel(encoder=VisionTransformer(**vit_options()), text=text, patch_size=4, **options | changes)


def task_of(model=None, **changes):
    options = {"layer_decay": 1.0, "head_multiplier": 1.0, "backbone_multiplier": 1.0, "trained": "all"}
    options |= {"unfreeze_step": None, "hidden_only": False, "weight_decay": 0.0, "lr_scaling": "none"}
    sizes = {"lr": 0.1, "lr_scaling_batch": 256, "global_batch_size": 64}
    settings = {"contrast": "softmax", "templates": ["{}", "a {}"], "monitor": "val/loss", "vocabulary": WORDS}
    return Contrastive(
        model=model or model_of(),
        optimization=Optimization(algorithm=torch.optim.SGD, **sizes, **options),
        schedule=partial(constant, warmup_ratio=0.0, warmup_steps=None),
        seed=0,
        **settings | changes,
    )


CAPTIONS = Captions(
    ["a cat", "the cat", "a dog left of a cat", "a dog", "two dog", "a cat right of a dog", "dog", "a cat"],
    WORDS,
    np.array([0, 0, 3, 1, 4, 3, 1, 0]),
)
NAMES = ["cat", "dog"]


def batch_of(places, captions=CAPTIONS):
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(len(captions), 1, 32, 32, generator=generator)[places]
    return Batch((View(patchify(images, 4), (8, 8)),), captions[places].collate(), torch.as_tensor(places))


def scored(task, batches, captions=CAPTIONS, names=NAMES):
    task._trainer = SimpleNamespace(datamodule=SimpleNamespace(targets=captions, class_names=names), global_step=0)
    task.eval()
    with torch.no_grad():
        for places in batches:
            task.evaluate_batch(batch_of(places, captions), "val")
    found = task.scores("val")
    task._trainer = None
    return {name: float(value) for name, value in found.items()}


def test_metrics_are_of_the_whole_split_whatever_its_batches_and_order():
    task = task_of()
    whole = scored(task, [list(range(8))])
    assert scored(task, [[3, 1], [7], [0, 6, 2, 4, 5]]) == pytest.approx(whole)
    assert whole.keys() == {"loss", "zero_shot", "text_recall1", "text_recall5", "image_recall1", "image_recall5"}


def test_the_loss_is_that_of_the_pairs_in_their_order():
    task = task_of()
    with torch.no_grad():
        found = task.eval()(batch_of(list(range(8))))
        expected = softmax_contrastive(Pairs(found.image, found.text), found.scale, found.bias).mean()
    assert scored(task, [[5, 4], [0, 1, 2, 3, 6, 7]])["loss"] == pytest.approx(float(expected))


AXES = torch.tensor([[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0.8, 0.6]])
ONE = torch.ones(1)


def recalled(image, text, codes, meanings, images, right=None, order=None):
    """What the metric gives of features that are named by their places in AXES."""
    metric, n = Retrieval(softmax_contrastive, 1, 3), len(image)
    right = torch.full((n,), float("nan")) if right is None else torch.tensor(right)
    numbers = [torch.tensor(values) for values in (meanings, images)]
    scored = RetrievalSamples(AXES[image], AXES[text], torch.tensor(codes)[:, None], *numbers, torch.arange(n), right)
    metric.update(RetrievalSamples(*(value[order or list(range(n))] for value in scored)), ONE, ONE)
    return {name: float(value) for name, value in metric.compute().items()}


def test_recall_is_of_meanings_among_different_texts():
    """Two images are most like a text of another meaning, which is the second's own."""
    pairs = ([0, 0, 1, 2], [1, 1, 0, 2], [5, 5, 6, 7])
    found = recalled(*pairs, [0, 0, 1, 2], [0, 1, 2, 3], [1.0, 0.0, float("nan"), 0.0])
    assert found["text_recall1"] == 0.25
    assert found["image_recall1"] == pytest.approx(1 / 3)
    assert found["text_recall5"] == found["image_recall5"] == 1
    assert found["zero_shot"] == pytest.approx(1 / 3)
    each = recalled(*pairs, [0, 1, 2, 3], [0, 1, 2, 3], [1.0, 0.0, float("nan"), 0.0])  # the text is what it means
    assert each == found
    nothing = Retrieval(softmax_contrastive, 1, 3).compute()
    assert nothing.keys() == found.keys()
    assert all(value.isnan() for value in nothing.values())


def test_an_image_with_several_texts_is_one_and_finds_any_of_them():
    """Three images, the first with the texts 5 and 6, the second with 6 and 7, the third with 8."""
    pairs = ([0, 0, 1, 1, 2], [2, 0, 0, 1, 3], [5, 6, 6, 7, 8])
    for order in ([0, 1, 2, 3, 4], [3, 0, 4, 1, 2]):
        found = recalled(*pairs, [0, 0, 2, 2, 4], [0, 0, 2, 2, 4], order=order)
        assert found["text_recall1"] == pytest.approx(2 / 3)  # 6 is of the first, 7 of the second, 5 not of the third
        assert found["image_recall1"] == pytest.approx(2 / 4)  # of 6 and 7; 5 finds the third, and 8 the second
        assert found["text_recall5"] == found["image_recall5"] == 1


def test_texts_of_one_image_stand_in_different_blocks_where_they_can(monkeypatch):
    monkeypatch.setattr("vitlab.tasks.retrieval.BLOCK", 2)
    image, text, codes = [0, 0, 1, 1], [0, 0, 1, 1], [5, 6, 7, 8]
    images = [0, 0, 2, 2]
    apart = softmax_contrastive(Pairs(AXES[:2], AXES[:2]), ONE, ONE).mean()
    assert recalled(image, text, codes, images, images)["loss"] == pytest.approx(float(apart))


def test_classes_are_told_by_the_mean_of_their_templates():
    task = task_of().eval()
    with torch.no_grad():
        known = task.embed_classes(NAMES)
        one = [task_of(task.model, templates=[template]).embed_classes(["dog"]) for template in ("{}", "a {}")]
        torch.testing.assert_close(known[1:], F.normalize((one[0] + one[1]) / 2, dim=1))
        classifier = task.zero_shot(NAMES)
        logits = classifier(*batch_of([0, 3]).view.arguments())
    assert logits.shape == (2, 2)
    torch.testing.assert_close(classifier.probabilities(logits).sum(dim=1), torch.ones(2))
    with pytest.raises(DataError, match="the word 'horse' of the text 'horse' is not among the 8"):
        task.embed_classes(["horse"])
    with pytest.raises(ConfigError, match="has more than the 9 tokens that the model reads"):
        task.embed_classes(["a dog left of a cat left of a dog"])


def test_zero_shot_counts_images_with_one_class():
    task = task_of().eval()
    with torch.no_grad():
        image = task(batch_of(list(range(8)))).image
        said = (image @ task.embed_classes(NAMES).T).argmax(dim=1)
    single = CAPTIONS.meanings < 2
    expected = (said.numpy() == CAPTIONS.meanings)[single].mean()
    assert scored(task, [[0, 1, 2], [3, 4, 5, 6, 7]])["zero_shot"] == pytest.approx(expected)


def test_texts_without_meanings_and_classes_are_compared_too():
    texts = Texts(CAPTIONS.values, WORDS)
    found = scored(task_of(), [[0, 1, 2], [3, 4, 5, 6, 7]], texts, [])
    assert found.keys() == {"loss", "text_recall1", "text_recall5", "image_recall1", "image_recall5"}
    assert 0 <= found["text_recall1"] <= found["text_recall5"] <= 1


def test_samples_of_one_image_count_as_one():
    """Seven texts of one image, whose second it finds, and one of another, which finds a text of the first."""
    task, images, texts = task_of(), torch.tensor([0] * 7 + [1]), torch.tensor([2, 0, 2, 1, 2, 2, 2, 2])
    task.forward = lambda batch: ImageTextFeatures(AXES[images[batch.index]], AXES[texts[batch.index]], ONE, ONE)
    several = SeveralTexts(CAPTIONS.values, WORDS, np.array([0] * 7 + [7]))
    found = scored(task, [[0, 1, 2], [3, 4, 5, 6, 7]], several, [])
    assert found["text_recall1"] == 1 / 2  # by samples it would be an eighth


@pytest.mark.parametrize("sharded", [False, True])
def test_the_scale_stays_at_most_100(sharded, monkeypatch):
    monkeypatch.setattr("vitlab.tasks.task.Task.optimizer_step", lambda self, *args, **kwargs: None, raising=False)
    task = task_of()
    with torch.no_grad():
        task.model.logit_scale.fill_(9.0)
    with one_process() if sharded else nullcontext() as mesh:
        if sharded:
            fully_shard(task.model, mesh=mesh)
        task.training_losses(batch_of([0, 1, 3])).mean().backward()
        task.optimizer_step()
        assert isinstance(task.model.logit_scale, DTensor) == sharded
        assert unshard_tensor(task.model.logit_scale).item() == pytest.approx(MOST)
        with torch.no_grad():
            assert task(batch_of([0])).scale.item() == pytest.approx(100)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"model": VisionTransformer(**vit_options())}, "the model is a VisionTransformer, which reads no texts"),
        ({"contrast": "cosine"}, "contrast 'cosine' is not one of: softmax, sigmoid"),
        (
            {"vocabulary": WordVocabulary(["a"])},
            r"model\.text\.vocab_size is 11, but .* 4 tokens; to find it, set data",
        ),
        ({"templates": ["a"]}, r"task\.templates \['a'\] must be texts that contain \{\} in the place of a name"),
        ({"templates": []}, r"task\.templates \[\] must be texts"),
        ({"monitor": "val/acc1"}, "use one of: val/loss, val/zero_shot, val/text_recall1"),
    ],
)
def test_what_does_not_fit_is_refused(changes, sentence):
    with pytest.raises((ValueError, ConfigError), match=sentence):
        task_of(**changes)


@pytest.mark.parametrize(
    ("trainer", "policy", "sentence"),
    [
        (
            {"accumulate_grad_batches": 2, "world_size": 1},
            "error",
            "this batch is cut into 2 parts; set data.device_batch_size",
        ),
        ({"accumulate_grad_batches": 1, "world_size": 2}, "skip", "set data.loading.on_bad_image=error"),
    ],
)
def test_pairs_that_would_not_meet_are_refused(trainer, policy, sentence):
    datamodule = SimpleNamespace(images=SimpleNamespace(num_views=1), targets=CAPTIONS, class_names=NAMES)
    datamodule.global_batch_size = 2
    datamodule.trainer, datamodule.loading = SimpleNamespace(**trainer), SimpleNamespace(on_bad_image=policy)
    with pytest.raises(ConfigError, match=sentence):
        task_of().plan(1, datamodule, {})


def test_data_without_classes_are_not_judged_by_them():
    task, trainer = task_of(), SimpleNamespace(accumulate_grad_batches=1, world_size=1)
    assert "val/zero_shot" in task.monitors()
    data = {"images": SimpleNamespace(num_views=1), "targets": CAPTIONS, "class_names": [], "global_batch_size": 2}
    task.plan(1, SimpleNamespace(**data, trainer=trainer), {})
    assert "val/zero_shot" not in task.monitors()
