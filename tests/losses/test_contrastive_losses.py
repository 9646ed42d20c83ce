"""CLIP's and SigLIP's losses are those of Hugging Face's models; two processes have the loss and gradients of one."""

import json
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from transformers.models.clip.modeling_clip import image_text_contrastive_loss

from vitlab.losses import Pairs, sigmoid_contrastive, softmax_contrastive

LOSSES = {"softmax": softmax_contrastive, "sigmoid": sigmoid_contrastive}


def pairs(B=6, D=8):
    generator = torch.Generator().manual_seed(0)
    return (F.normalize(torch.randn(B, D, generator=generator), dim=1) for _ in range(2))


def test_the_softmax_is_clips():
    image, text = pairs()
    ours = softmax_contrastive(Pairs(image, text), torch.tensor(7.0), torch.tensor(0.0))
    assert ours.shape == (6,)
    torch.testing.assert_close(ours.mean(), image_text_contrastive_loss(7.0 * text @ image.T))


def test_the_sigmoid_is_siglips():
    image, text = pairs()
    scale, bias = torch.tensor(10.0), torch.tensor(-10.0)
    logits = scale * image @ text.T + bias
    expected = -sum(F.logsigmoid(z if i == j else -z) for i, row in enumerate(logits) for j, z in enumerate(row)) / 6
    ours = sigmoid_contrastive(Pairs(image, text), scale, bias)
    assert ours.shape == (6,)
    torch.testing.assert_close(ours.mean(), expected)


@pytest.mark.parametrize("loss", LOSSES.values())
def test_a_part_among_all_pairs_costs_what_it_costs_in_the_whole(loss):
    image, text = pairs()
    scale, bias = torch.tensor(5.0), torch.tensor(-1.0)
    whole = loss(Pairs(image, text), scale, bias)
    parts = [loss(Pairs(image[i : i + 2], text[i : i + 2], image, text, i), scale, bias) for i in (0, 2, 4)]
    torch.testing.assert_close(torch.cat(parts), whole)


@pytest.mark.parametrize("loss", LOSSES.values())
def test_logits_are_in_float32_under_autocast(loss):
    image, text = pairs()
    scale, bias = torch.tensor(50.0), torch.tensor(0.0)
    with torch.autocast("cpu", torch.bfloat16):
        found = loss(Pairs(image, text), scale, bias)
    assert torch.equal(found, loss(Pairs(image, text), scale, bias))


RANK = """
import json, sys
import torch, torch.distributed as dist
import torch.nn.functional as F
from vitlab.losses import gather_pairs, sigmoid_contrastive, softmax_contrastive

rank, loss = int(sys.argv[2]), {"softmax": softmax_contrastive, "sigmoid": sigmoid_contrastive}[sys.argv[3]]
if rank >= 0:
    dist.init_process_group("gloo", store=dist.FileStore(sys.argv[1], 2), rank=rank, world_size=2)
generator = torch.Generator().manual_seed(0)
inputs = torch.randn(2, 8, 5, generator=generator)
weights = torch.nn.Parameter(torch.randn(2, 4, 5, generator=generator))
scale, bias = torch.nn.Parameter(torch.tensor(1.5)), torch.nn.Parameter(torch.tensor(-2.0))
own = inputs if rank < 0 else inputs[:, 4 * rank : 4 * rank + 4]
image, text = (F.normalize(F.linear(x, w), dim=1) for x, w in zip(own, weights))
value = loss(gather_pairs(image, text), scale.exp(), bias).mean()
value.backward()
found = [value.detach(), weights.grad, scale.grad, torch.zeros(()) if bias.grad is None else bias.grad]
if rank >= 0:
    for tensor in found:  # as data parallelism does
        dist.all_reduce(tensor)
        tensor /= 2
print(json.dumps([tensor.flatten().tolist() for tensor in found]))
"""


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize("loss", LOSSES)
def test_two_processes_have_the_loss_and_the_gradients_of_one(tmp_path, loss):
    commands = [[sys.executable, "-c", RANK, str(tmp_path / "store"), str(rank), loss] for rank in (-1, 0, 1)]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for command in commands]
    one, *two = [json.loads(process.communicate(timeout=120)[0]) for process in processes]
    assert sum(abs(value) for value in one[1]) > 0.1
    for found in two:
        for ours, expected in zip(found, one, strict=True):
            assert ours == pytest.approx(expected, abs=1e-5)
