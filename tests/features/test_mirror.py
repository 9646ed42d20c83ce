"""Whether images mean the same in a mirror, of shapes that do and shapes that do not."""

import torch

from vitlab.features import is_mirror_invariant


def noisy(shapes, times=30):
    """Each shape so many times, by turns, with noise: images (n, S, S) and their classes."""
    target = torch.arange(len(shapes)).repeat(times)
    noise = torch.randn(len(target), *shapes.shape[1:], generator=torch.Generator().manual_seed(0))
    order = torch.randperm(len(target), generator=torch.Generator().manual_seed(1))
    return (shapes[target] + 0.2 * noise)[order], target[order], len(shapes)


def test_bars_do_and_triangles_do_not():
    bars = torch.zeros(2, 8, 8)
    bars[0, :, 3:5] = bars[1, 3:5] = 1
    left = torch.ones(8, 8).tril()
    assert is_mirror_invariant(*noisy(bars))
    assert not is_mirror_invariant(*noisy(torch.stack([left, left.flip(-1)])))
    assert not is_mirror_invariant(*noisy(torch.stack([left, left.flip(0), bars[0]])))


def test_noise_and_too_few_images_count_as_the_same():
    images = torch.randn(100, 8, 8, generator=torch.Generator().manual_seed(0))
    assert is_mirror_invariant(images, torch.arange(100) % 4, 4)
    for n in range(4):
        assert is_mirror_invariant(images[:n], torch.arange(n), 4)
