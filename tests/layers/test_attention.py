import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vitlab.layers import (
    Attention,
    RelativePosition,
    RotaryPosition,
    attention_weights,
    causal_mask,
    padding_mask,
    written_attention,
)
from vitlab.layers.attention import fused_attention, is_written_faster

SIZES = st.fixed_dictionaries(
    {"B": st.integers(1, 3), "h": st.integers(1, 3), "N": st.integers(1, 7), "d": st.sampled_from([1, 2, 5, 8])}
)
MASKS = ["none", "bool", "float", "padding"]


def attention(embed_dim=12, num_heads=3, qkv_bias=True, std=None, **options):
    torch.manual_seed(0)
    layer = Attention(embed_dim=embed_dim, num_heads=num_heads, qkv_bias=qkv_bias, **options).eval()
    if std is not None:
        for parameter in layer.parameters():
            torch.nn.init.normal_(parameter, std=std)
    return layer


def mask(kind, B=2, N=5):
    """Of that kind, and such that every token may look at the first."""
    if kind == "none":
        return None
    if kind == "float":
        return torch.randn(N, N)
    if kind == "padding":
        present = torch.rand(B, N) < 0.6
        present[:, 0] = True
        return padding_mask(present)
    allowed = torch.rand(B, 1, N, N) < 0.6
    allowed[..., 0] = True
    return allowed


def positioned(position):
    sizes = {"embed_dim": 12, "num_heads": 3, "grid": (2, 2), "num_prefix_tokens": 1}
    return {"none": None, "relative": RelativePosition(**sizes), "rotary": RotaryPosition(**sizes)}[position]


# -- the equations


@pytest.mark.parametrize("qkv_bias", [True, False])
@pytest.mark.parametrize("product", ["fused", "written"])
def test_each_head_is_the_softmax_of_scaled_products(qkv_bias, product):
    layer, d = attention(qkv_bias=qkv_bias, product=product), 4
    x = torch.randn(2, 5, 12)
    Q, K, V = (x @ layer.qkv.weight.T + (layer.qkv.bias if qkv_bias else 0)).split(12, dim=-1)
    heads = []
    for head in range(3):
        q, k, v = (matrix[..., head * d : (head + 1) * d] for matrix in (Q, K, V))
        heads.append(torch.softmax(q @ k.transpose(1, 2) / math.sqrt(d), dim=-1) @ v)
    expected = torch.cat(heads, dim=-1) @ layer.proj.weight.T + layer.proj.bias
    torch.testing.assert_close(layer(x), expected, atol=1e-6, rtol=1e-5)


@given(SIZES, st.sampled_from(MASKS), st.booleans(), st.integers(0, 2**31))
@settings(deadline=None, max_examples=60)
def test_written_out_and_fused_are_equal(sizes, kind, is_causal, seed):
    torch.manual_seed(seed)
    B, h, N, d = sizes.values()
    q, k, v = torch.randn(3, B, h, N, d).unbind()
    attn_mask = mask(kind, B, N)
    fused = fused_attention(q, k, v, attn_mask, 0.0, is_causal)
    torch.testing.assert_close(written_attention(q, k, v, attn_mask, 0.0, is_causal), fused, atol=1e-5, rtol=0)
    if attn_mask is None or not is_causal:  # torch's own takes one of them
        own = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask, 0.0, is_causal)
        torch.testing.assert_close(fused, own, atol=0, rtol=0)
    rows = attention_weights(q, k, attn_mask, is_causal).sum(dim=-1)
    torch.testing.assert_close(rows, torch.ones(B, h, N), atol=1e-5, rtol=0)


@pytest.mark.parametrize("product", [fused_attention, written_attention])
@pytest.mark.parametrize("mask_kind", ["bool", "float"])
def test_a_token_that_may_look_at_none_gets_nothing_and_no_nan(product, mask_kind):
    q, k, v = torch.randn(3, 1, 2, 4, 8, requires_grad=True).unbind()
    allowed = torch.ones(4, 4, dtype=torch.bool)
    allowed[1] = False
    attn_mask = allowed if mask_kind == "bool" else torch.zeros(4, 4).masked_fill(~allowed, -torch.inf)
    y = product(q, k, v, attn_mask, 0.0, False)
    assert not y[:, :, 1].any()
    assert y[:, :, [0, 2, 3]].abs().min() > 0
    gradients = torch.autograd.grad(y.square().sum(), (q, k, v))
    assert all(gradient.isfinite().all() and gradient.any() for gradient in gradients)


@pytest.mark.parametrize("position", ["none", "relative", "rotary"])
@pytest.mark.parametrize("qk_norm", [None, torch.nn.LayerNorm, torch.nn.RMSNorm])
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("kind", MASKS)
def test_the_weights_give_the_output_of_the_fused_kernel(position, qk_norm, is_causal, kind):
    layer = attention(position=positioned(position), qk_norm=qk_norm, std=0.5)
    x, attn_mask = torch.randn(2, 5, 12), mask(kind)
    A, (_, _, v) = layer.weights(x, None, attn_mask, is_causal), layer.heads(x, None)
    assert A.shape == (2, 3, 5, 5)
    torch.testing.assert_close(A.sum(dim=-1), torch.ones(2, 3, 5), atol=1e-5, rtol=0)
    attended = layer.proj((A @ v).transpose(1, 2).flatten(2))
    torch.testing.assert_close(attended, layer(x, None, attn_mask, is_causal), atol=1e-5, rtol=0)


# -- masks


@given(st.integers(2, 6), st.data())
@settings(deadline=None, max_examples=40)
def test_a_masked_token_has_no_influence_on_the_others(N, data):
    gone = data.draw(st.integers(0, N - 1))
    product = data.draw(st.sampled_from(["fused", "written"]))
    layer, x = attention(product=product, std=0.5), torch.randn(2, N, 12)
    present = torch.arange(N) != gone
    other = x.clone()
    other[:, gone] = 1e3 * torch.randn(12)
    attn_mask = padding_mask(present.expand(2, N))
    before, after = (layer(tokens, attn_mask=attn_mask)[:, present] for tokens in (x, other))
    torch.testing.assert_close(after, before, atol=1e-6, rtol=0)
    assert not torch.allclose(layer(other)[:, present], layer(x)[:, present], atol=1e-3)  # without the mask
    assert not layer.weights(x, attn_mask=attn_mask)[..., gone].any()


@given(st.integers(2, 6), st.data())
@settings(deadline=None, max_examples=40)
def test_in_causal_attention_later_tokens_have_no_influence(N, data):
    first = data.draw(st.integers(1, N - 1))
    product = data.draw(st.sampled_from(["fused", "written"]))
    layer, x = attention(product=product, std=0.5), torch.randn(2, N, 12)
    other = x.clone()
    other[:, first:] = 1e3 * torch.randn(N - first, 12)
    before, after = (layer(tokens, is_causal=True) for tokens in (x, other))
    torch.testing.assert_close(after[:, :first], before[:, :first], atol=1e-6, rtol=0)
    assert not torch.allclose(after[:, first:], before[:, first:], atol=1e-3)
    torch.testing.assert_close(layer(x, attn_mask=causal_mask(N)), before, atol=1e-5, rtol=0)


@pytest.mark.parametrize("position", ["none", "relative"])
@pytest.mark.parametrize("product", ["fused", "written"])
@pytest.mark.parametrize("kind", ["bool", "float", "padding"])
def test_a_mask_and_causality_hold_together(position, product, kind):
    layer = attention(position=positioned(position), product=product, std=0.5)
    x, attn_mask = torch.randn(2, 5, 12), mask(kind)
    if attn_mask.dtype == torch.bool:
        both = attn_mask & causal_mask(5)
    else:
        both = attn_mask.masked_fill(~causal_mask(5), -torch.inf)
    expected = layer(x, attn_mask=both)
    torch.testing.assert_close(layer(x, attn_mask=attn_mask, is_causal=True), expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize("present", [[[1, 1, 0], [1, 0, 0]], [[True, True, False], [True, False, False]]])
def test_presence_may_be_said_with_0_and_1(present):
    """Added to the scores, 0 and 1 would mask nothing."""
    attn_mask = padding_mask(torch.tensor(present))
    A = attention().weights(torch.randn(2, 3, 12), attn_mask=attn_mask)
    assert not A[0, :, :, 2].any()
    assert not A[1, :, :, 1:].any()


@pytest.mark.parametrize("position", ["none", "relative"])
@pytest.mark.parametrize("is_causal", [False, True])
def test_a_mask_of_whole_numbers_is_refused(position, is_causal):
    layer = attention(position=positioned(position), product="written")
    with pytest.raises(ValueError, match="an attn_mask holds bools, or floats to add to the scores"):
        layer(torch.randn(2, 5, 12), attn_mask=torch.ones(5, 5, dtype=torch.long), is_causal=is_causal)


# -- options


@given(st.floats(0.1, 10.0), st.sampled_from([torch.nn.LayerNorm, torch.nn.RMSNorm]))
@settings(deadline=None, max_examples=20)
def test_query_key_norm_makes_scores_deaf_to_the_scale_of_queries(scale, norm):
    x, weights = torch.randn(2, 5, 12), []
    for qk_norm in (norm, None):
        layer = attention(qk_norm=qk_norm and (lambda width: norm(width, eps=0)), qkv_bias=False, std=1.0)
        before = layer.weights(x)
        with torch.no_grad():
            layer.qkv.weight[:12] *= scale
        weights.append((before, layer.weights(x)))
    (before, after), (plain_before, plain_after) = weights
    torch.testing.assert_close(after, before, atol=1e-5, rtol=0)
    if not 0.8 < scale < 1.25:
        assert not torch.allclose(plain_after, plain_before, atol=1e-3)


def test_a_width_that_heads_do_not_divide_is_refused():
    with pytest.raises(ValueError, match="embed_dim 10 is not a multiple of num_heads 3"):
        attention(embed_dim=10)


@pytest.mark.parametrize("product", ["fused", "written"])
@pytest.mark.parametrize("rate", ["drop_rate", "attn_drop_rate"])
def test_dropout_acts_only_in_training(rate, product):
    layer, x = attention(product=product, **{rate: 0.5}), torch.randn(2, 5, 12)
    expected = attention(product=product)(x)  # the same seed, the same weights
    assert not torch.allclose(layer.train()(x), expected)
    assert torch.equal(layer.eval()(x), expected)


@pytest.mark.parametrize("product", [fused_attention, written_attention])
def test_dropout_of_attention_drops_weights_and_keeps_their_mean(product):
    """With the unit matrix as values, the output is the weights."""
    torch.manual_seed(0)
    q, k = torch.zeros(2, 1, 1, 400, 400).unbind()  # each weighs 1/400
    A = product(q, k, torch.eye(400)[None, None], None, 0.25, False) * 400
    torch.testing.assert_close(A.unique(), torch.tensor([0.0, 1 / 0.75]))
    assert (A == 0).float().mean().item() == pytest.approx(0.25, abs=4 * (0.25 * 0.75 / 160_000) ** 0.5)


@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize("position", ["none", "relative", "rotary"])
@pytest.mark.parametrize("product", ["fused", "written"])
def test_bf16_autocast_agrees_with_float32(product, position, kind):
    layer = attention(product=product, position=positioned(position), qk_norm=torch.nn.LayerNorm, std=0.3)
    x, attn_mask = torch.randn(2, 5, 12), mask(kind)
    with torch.autocast("cpu", torch.bfloat16):
        y = layer(x, attn_mask=attn_mask)
    assert y.dtype == torch.bfloat16
    torch.testing.assert_close(y.float(), layer(x, attn_mask=attn_mask), atol=0.05, rtol=0)


# -- the faster way


@pytest.mark.parametrize(
    ("dtype", "products", "queries", "tokens", "written"),
    [
        (torch.bfloat16, "none", 640, 640, True),
        (torch.bfloat16, "none", 641, 641, False),
        (torch.float32, "none", 17, 17, False),
        (torch.float32, "bf16", 256, 256, True),
        (torch.float32, "bf16", 257, 257, False),
        (torch.float32, "none", 1, 577, True),
        (torch.float32, "none", 1, 31, False),
        (torch.float32, "none", 2, 577, False),
    ],
)
def test_auto_takes_the_way_that_was_measured_to_be_faster(dtype, products, queries, tokens, written):
    before = torch.backends.mkldnn.matmul.fp32_precision
    torch.backends.mkldnn.matmul.fp32_precision = products
    try:
        assert is_written_faster(torch.empty(1, 1, tokens, 8, dtype=dtype), queries) is written
    finally:
        torch.backends.mkldnn.matmul.fp32_precision = before


def test_a_compiled_model_is_one_graph():
    torch._dynamo.reset()
    model = attention()
    explanation = torch._dynamo.explain(model)(torch.randn(2, 5, 12))
    assert (explanation.graph_count, explanation.graph_break_count) == (1, 0)
