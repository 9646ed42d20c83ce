"""Mixed images are the combinations that their targets tell of, and come from the given seed alone."""

import pytest
import torch
from torchvision.transforms import v2

from vitlab.data import Mixing

B = 6
SHARES = torch.eye(B)  # every image its own class: a row of the mixed target says what its image was made of


def mixing(**changes):
    settings = {"rate": 1.0, "cutmix_rate": 0.5, "mixup_alpha": 0.8, "cutmix_alpha": 1.0}
    return Mixing(**settings | changes)


@pytest.fixture
def images():
    return torch.rand(B, 3, 8, 8, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("cutmix_rate", [0.0, 1.0])
def test_targets_are_probabilities_of_an_image_and_its_neighbour(images, cutmix_rate, seed):
    _, target = mixing(cutmix_rate=cutmix_rate)(images, SHARES, seed)
    assert target.shape == (B, B)
    torch.testing.assert_close(target.sum(dim=1), torch.ones(B))
    kept = target.diagonal()
    assert (kept == kept[0]).all()
    assert 0 <= kept[0] <= 1
    torch.testing.assert_close(target.roll(-1, dims=0).diagonal(), 1 - kept)


@pytest.mark.parametrize("seed", range(8))
def test_mixup_adds_images_in_the_proportions_of_the_target(images, seed):
    mixed, target = mixing(cutmix_rate=0.0)(images, SHARES, seed)
    torch.testing.assert_close(mixed, torch.einsum("bk,kchw->bchw", target, images))


@pytest.mark.parametrize("seed", range(8))
def test_cutmix_pastes_a_rectangle_of_the_area_that_the_target_tells(images, seed):
    mixed, target = mixing(cutmix_rate=1.0)(images, SHARES, seed)
    own = (mixed == images).all(dim=1)  # (B, H, W)
    assert torch.equal(torch.where(own[:, None], images, images.roll(1, dims=0)), mixed)
    torch.testing.assert_close(own.float().mean(dim=(1, 2)), target.diagonal())
    rows, columns = (~own[0]).any(dim=1), (~own[0]).any(dim=0)
    assert torch.equal(~own[0], rows[:, None] & columns[None, :])


def test_the_seed_decides_everything(images):
    torch.manual_seed(1)
    first = [mixing()(images, SHARES, seed)[1] for seed in range(20)]
    torch.manual_seed(2)
    again = [mixing()(images, SHARES, seed)[1] for seed in range(20)]
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert len({round(target[0, 0].item(), 6) for target in first}) > 10


def test_mixing_leaves_the_global_generator_and_its_arguments_as_they_were(images):
    state, copy = torch.get_rng_state(), images.clone()
    for seed in range(4):
        mixing()(images, SHARES, seed)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(images, copy)
    assert torch.equal(SHARES, torch.eye(B))


def test_rate_zero_leaves_images_and_classes(images):
    for seed in range(20):
        mixed, target = mixing(rate=0.0)(images, SHARES, seed)
        assert torch.equal(mixed, images)
        assert torch.equal(target, SHARES)


def test_rates_are_probabilities(images):
    kinds = {"none": 0, "cutmix": 0, "mixup": 0}
    for seed in range(400):
        mixed, _ = mixing(rate=0.5, cutmix_rate=0.25, mixup_alpha=5.0)(images, SHARES, seed)
        same = torch.isclose(mixed, images).all(dim=1).float().mean()
        kinds["none" if same == 1 else "mixup" if same == 0 else "cutmix"] += 1
    assert 160 < kinds["none"] < 240
    assert 120 < kinds["mixup"] < 180
    assert 25 < kinds["cutmix"] < 75


@pytest.mark.parametrize("cutmix_rate", [0.0, 1.0])
def test_it_is_torchvisions_mixing(images, cutmix_rate):
    with torch.random.fork_rng():
        torch.manual_seed(5)
        torch.rand(2)  # whether to mix, and which way
        reference = v2.CutMix(alpha=1.0, num_classes=B) if cutmix_rate else v2.MixUp(alpha=0.8, num_classes=B)
        expected = reference(images, torch.arange(B))
    mixed, target = mixing(cutmix_rate=cutmix_rate)(images, SHARES, 5)
    assert torch.equal(mixed, expected[0])
    assert torch.equal(target, expected[1])


# -- several classes an image

HOT = torch.tensor([[1, 1, 0], [0, 0, 0], [0, 1, 1], [1, 0, 0], [1, 1, 1], [0, 0, 1]]).float()


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("cutmix_rate", [0.0, 1.0])
def test_several_classes_are_mixed_as_the_images_are(images, cutmix_rate, seed):
    single, shares = mixing(cutmix_rate=cutmix_rate)(images, SHARES, seed)
    mixed, target = mixing(cutmix_rate=cutmix_rate)(images, HOT, seed)
    assert torch.equal(mixed, single)
    torch.testing.assert_close(target, shares @ HOT)
    assert (target <= 1 + 1e-6).all()


def test_several_classes_that_are_not_mixed_stay(images):
    copy = HOT.clone()
    mixed, target = mixing(rate=0.0)(images, HOT, 0)
    assert torch.equal(mixed, images)
    assert torch.equal(target, HOT)
    mixing()(images, HOT, 0)
    assert torch.equal(HOT, copy)
