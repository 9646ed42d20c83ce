"""Merged tokens: the paper's algorithm, token by token, and what it must leave as it is."""

import numpy as np
import onnxruntime
import pytest
import torch
from conftest import vit_options

from vitlab.bundles.formats import write_onnx
from vitlab.bundles.graph import Graph
from vitlab.compression.token_merging import TokenMerging, attend, explain_unmergeable, merge_tokens
from vitlab.models import DistilledVisionTransformer, VisionTransformer


def build(kind=VisionTransformer, **changes):
    torch.manual_seed(0)
    return kind(**vit_options(**{"initialization": "normal", **changes})).eval()


def merge_slowly(x, keys, size, r, prefix):
    """Section 3 of the paper for one image, with lists: alternate patches into two sets, draw an edge from each of the
    first to its most similar of the second, keep the r most similar edges, merge by mean weighted by size."""
    n = len(x) - prefix
    proposing = [prefix + k for k in range(1, n, 2)]
    others = [prefix + k for k in range(0, n, 2)]
    cosine = torch.nn.functional.cosine_similarity
    edges = []
    for a in proposing:
        best = max(others, key=lambda b: cosine(keys[a], keys[b], dim=0).item())
        edges.append((cosine(keys[a], keys[best], dim=0).item(), a, best))
    chosen = sorted(edges, reverse=True)[:r]
    groups = {token: [token] for token in [*range(prefix), *proposing, *others]}
    for _, a, b in chosen:
        groups[b] += groups.pop(a)
    means = [sum(x[t] * size[t] for t in group) / sum(size[t] for t in group) for group in groups.values()]
    return torch.stack(means), torch.stack([sum(size[t] for t in group) for group in groups.values()])


@pytest.mark.parametrize(("patches", "prefix", "r"), [(16, 1, 4), (15, 1, 7), (9, 0, 3), (8, 3, 100)])
def test_tokens_are_merged_as_in_the_paper(patches, prefix, r):
    torch.manual_seed(patches)
    x, keys = torch.randn(3, patches + prefix, 8), torch.randn(3, patches + prefix, 4)
    size = torch.randint(1, 5, (3, patches + prefix, 1)).float()
    size[:, :prefix] = 1
    merged, sizes = merge_tokens(x, keys, size, r, prefix)
    for image in range(3):
        by_hand = merge_slowly(x[image], keys[image], size[image], min(r, patches // 2), prefix)
        torch.testing.assert_close((merged[image], sizes[image]), by_hand)
    assert torch.equal(merged[:, :prefix], x[:, :prefix])
    torch.testing.assert_close(sizes.sum(dim=1), size.sum(dim=1))


@pytest.mark.parametrize("prefix", [0, 1])
def test_a_whole_model_computes_what_the_paper_says(prefix):
    """With r of 16 patches in two blocks, attention written as a token repeated as often as its size."""
    model = build(class_token=bool(prefix), pool="cls" if prefix else "mean", fc_norm=None)
    image = torch.randn(1, 1, 32, 32)
    with torch.no_grad():
        found = TokenMerging(model, 5)(image)
        x, _ = model.embed(image)
        size = torch.ones(x.shape[1], 1)
        for block in model.blocks:
            y = block.norm1(x)
            repeated = torch.cat([y[:, t : t + 1].expand(-1, int(s), -1) for t, s in enumerate(size)], dim=1)
            q, k, v = block.attn.heads(y, None)[0], *block.attn.heads(repeated, None)[1:]
            A = (q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5).softmax(dim=-1)
            x = x + block.attn.proj((A @ v).transpose(1, 2).flatten(2))
            keys = block.attn.heads(y, None)[1].mean(dim=1)
            merged, size = merge_slowly(x[0], keys[0], size, 5, prefix)
            x = merged[None]
            x = x + block.mlp(block.norm2(x))
        x = model.norm(x)
        pooled = x[:, 0] if prefix else (x[0] * size).sum(dim=0, keepdim=True) / size.sum()
        by_hand = model.head(model.fc_norm(pooled))
    assert len(size) == prefix + 64 - 10
    torch.testing.assert_close(found, by_hand)


def test_without_merging_the_model_is_the_same_bit_for_bit():
    images = torch.randn(2, 1, 32, 32)
    for model in (build(), build(DistilledVisionTransformer), build(num_registers=2), build(pool="mean")):
        with torch.no_grad():
            assert torch.equal(TokenMerging(model, 0)(images), model(images))
            assert not torch.equal(TokenMerging(model, 8)(images), model(images))


def test_attention_counts_a_merged_token_as_often_as_it_has_parts():
    attention = build().blocks[0].attn
    x, sizes = torch.randn(1, 4, 32), torch.tensor([1.0, 3.0, 1.0, 2.0])
    repeated = x.repeat_interleave(sizes.long(), dim=1)
    with torch.no_grad():
        found, _ = attend(attention, x, sizes[None, :, None])
        torch.testing.assert_close(found[:, :1], attention(repeated)[:, :1])


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"position": "rotary"}, "positions act in each block"),
        ({"position_place": "every_layer"}, "positions act in each block"),
        ({"pool": "map", "class_token": False}, "AttentionPooling"),
    ],
)
def test_what_cannot_be_merged_is_refused_with_the_reason(changes, reason):
    model = build(**changes)
    assert reason in explain_unmergeable(model)
    with pytest.raises(ValueError, match=reason):
        TokenMerging(model, 4)
    assert "not Linear" in explain_unmergeable(torch.nn.Linear(2, 2))


@pytest.mark.slow
@pytest.mark.ci
def test_merging_can_be_written_for_onnx_with_any_batch(tmp_path):
    model = TokenMerging(build(num_registers=1), 8)
    graph = Graph("it", model, {"pixels": torch.randn(2, 1, 32, 32)}, ["logits"], {"pixels": {0: "batch"}})
    write_onnx(graph, tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    for size in (1, 5):
        images = torch.randn(size, 1, 32, 32)
        with torch.no_grad():
            np.testing.assert_allclose(session.run(None, {"pixels": images.numpy()})[0], model(images), atol=1e-5)
