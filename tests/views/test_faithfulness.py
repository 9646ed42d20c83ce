"""Deletion and insertion: patches go and come in the order of the map, and a right map scores better than a wrong
one."""

import pytest
import torch

from vitlab.views.faithfulness import KERNEL, SIGMA, Faithfulness, area, blur, mask_brightest, measure_faithfulness

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
