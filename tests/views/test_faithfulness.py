"""Deletion and insertion: patches go and come in the order of the map, and a right map scores better than a wrong
one."""

import pytest
import torch
from conftest import BARE, finished

from vitlab.views.faithfulness import (
    KERNEL,
    ORDERS,
    SIGMA,
    Faithfulness,
    area,
    blur,
    mask_brightest,
    measure_faithfulness,
    measure_random,
)

GRID, SIZE = (2, 3), (4, 6)


def test_patches_are_marked_in_the_order_of_the_map_whole_and_in_place():
    heat = torch.tensor([0.1, 0.9, 0.3, 0.5, 0.0, 0.5])
    masks = mask_brightest(heat, GRID, SIZE, steps=6)[:, 0]
    assert masks.shape == (7, 4, 6)
    for step, patches in enumerate(([], [1], [1, 3], [1, 3, 5], [1, 3, 5, 2], [1, 3, 5, 2, 0], range(6))):
        wanted = torch.zeros(SIZE, dtype=torch.bool)
        for patch in patches:
            row, column = divmod(patch, 3)
            wanted[2 * row : 2 * row + 2, 2 * column : 2 * column + 2] = True
        assert torch.equal(masks[step], wanted)


def test_few_steps_are_even_and_reach_all_patches():
    masks = mask_brightest(torch.rand(49), (7, 7), (14, 14), steps=4)
    assert [int(mask.sum()) // 4 for mask in masks] == [0, 12, 24, 37, 49]  # 12.25, 24.5, 36.75


def test_a_blurred_image_is_the_gaussian_mean_of_its_neighbours():
    torch.manual_seed(0)
    image = torch.rand(1, 2, 30, 25, dtype=torch.float64)
    half = KERNEL // 2
    offsets = range(-half, half + 1)
    weights = torch.tensor([[-(a * a + b * b) / (2 * SIGMA**2) for b in offsets] for a in offsets]).double().exp()
    mean = (image[0, 1, 14 - half : 15 + half, 12 - half : 13 + half] * weights).sum() / weights.sum()
    assert float(blur(image)[0, 1, 14, 12]) == pytest.approx(float(mean))
    torch.testing.assert_close(blur(torch.full_like(image, 0.3)), torch.full_like(image, 0.3))


def test_the_area_is_the_mean_height():
    assert area(torch.tensor([1.0, 0.0])) == 0.5
    assert area(torch.tensor([1.0, 0.0, 0.0, 0.0, 0.0])) == pytest.approx(1 / 8)
    assert Faithfulness(torch.zeros(3), torch.ones(3)).insertion_score == 1


def test_a_map_of_what_the_model_reads_deletes_faster_and_inserts_faster_than_its_reverse():
    """A model that reads one patch only: the map that marks it first is the best, the one that marks it last the
    worst."""
    image = torch.zeros(1, 1, 40, 40)
    image[..., 20:, 20:] = 1

    def predict(images):
        return images[:, 0, 20:, 20:].mean(dim=(1, 2))

    right = torch.tensor([0.0, 0.0, 0.0, 1.0])
    good = measure_faithfulness(predict, image, right, (2, 2))
    bad = measure_faithfulness(predict, image, -right, (2, 2))
    assert good.deletion.tolist() == [1, 0, 0, 0, 0]
    assert bad.deletion.tolist() == [1, 1, 1, 1, 0]
    assert good.insertion[1:].tolist() == [1, 1, 1, 1]
    start = float(blur(image)[0, 0, 20:, 20:].mean())
    assert bad.insertion.tolist() == pytest.approx([start] * 4 + [1])
    assert good.deletion_score < bad.deletion_score
    assert good.insertion_score > bad.insertion_score


@pytest.mark.slow
def test_maps_of_pytorch_grad_cam_are_scored_beside_ours_and_its_own_measure_agrees(tmp_path):
    """Deletion step by step is the library's removal of the most relevant pixels, for our maps and for its Grad-CAM. Of
    a model that has learned something, our map marks what the class is seen by: its reverse deletes later."""
    library = pytest.importorskip("pytorch_grad_cam")
    from pytorch_grad_cam.metrics.perturbation_confidence import PerturbationConfidenceMetric, RemoveMostRelevantFirst
    from pytorch_grad_cam.utils.model_targets import ClassifierOutputSoftmaxTarget

    from vitlab.run.inference.saved_run import SavedRun
    from vitlab.views import relevance

    small = ["model=vit_xs8", "model.depth=2", "model.embed_dim=96", "optimizer.lr=3e-3", "trainer.max_epochs=6"]
    saved = SavedRun.open(str(finished(tmp_path / "run", *BARE, *small)))
    model, data = saved.task().eval().model, saved.datamodule()
    data.prepare_data()
    data.setup()
    grid, N = model.patch_embed.grid, model.patch_embed.grid[0] * model.patch_embed.grid[1]
    scores = {name: [] for name in ("relevance", "not relevance", "Grad-CAM", "not Grad-CAM")}
    for place in range(0, 359, 24):
        image = data.preprocessing.normalize(data.get_evaluation_split("test")[(0, place)].image[None])
        with torch.no_grad():
            k = int(model(image).argmax())

        def predict(images, k=k):
            with torch.no_grad():
                return model(images).softmax(dim=1)[:, k]

        def lay_out(tokens):
            return tokens[:, -N:].transpose(1, 2).unflatten(2, grid)

        with library.GradCAM(model, [model.blocks[-1].norm1], reshape_transform=lay_out) as cam:
            pixels = cam(image, [ClassifierOutputSoftmaxTarget(k)])
        theirs = torch.from_numpy(pixels[0]).reshape(grid[0], 32 // grid[0], grid[1], 32 // grid[1]).mean(dim=(1, 3))
        for name, heat in (("relevance", relevance(model, image, k)), ("Grad-CAM", theirs.flatten())):
            heat = heat - 1e-6 * torch.arange(N)  # no two patches are equally bright
            found = measure_faithfulness(predict, image, heat, grid, steps=N)
            scores[name].append(found.deletion_score)
            scores[f"not {name}"].append(measure_faithfulness(predict, image, -heat, grid).deletion_score)
            wide = heat.reshape(grid).repeat_interleave(32 // grid[0], 0).repeat_interleave(32 // grid[1], 1).double()
            for count in (1, N // 3, N - 1):
                percentile = 100 * (N - count) * (1024 // N) / 1023
                metric = PerturbationConfidenceMetric(RemoveMostRelevantFirst(percentile, lambda x, mask: x * mask))
                own = metric(image, wide.numpy()[None], [ClassifierOutputSoftmaxTarget(k)], model, return_diff=False)
                assert float(found.deletion[count]) == pytest.approx(float(own[0]), abs=1e-5)
    means = {name: sum(own) / len(own) for name, own in scores.items()}
    assert means["relevance"] < means["not relevance"], means
    assert means["relevance"] < means["Grad-CAM"], means


def test_random_orders_remove_as_much_of_a_class_as_they_remove_patches():
    """Of a model whose classes each read one of 16 patches, any order but the right one: the mean over all classes
    falls by a sixteenth with each patch, and the same orders come again."""
    image = torch.ones(1, 1, 4, 4)
    found = measure_random(lambda images: images.flatten(1), image, (4, 4))
    assert len(found) == ORDERS
    for one in found:
        assert one.deletion.shape == one.insertion.shape == (17, 16)
        torch.testing.assert_close(one.deletion.mean(dim=1), torch.linspace(1, 0, 17))
    assert not torch.equal(found[0].deletion, found[1].deletion)
    again = measure_random(lambda images: images.flatten(1), image, (4, 4))
    assert torch.equal(found[0].deletion, again[0].deletion)
