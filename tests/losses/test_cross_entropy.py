"""Each loss against its formula written out in float64, and against timm's and torchvision's."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from timm.loss import BinaryCrossEntropy, SoftTargetCrossEntropy
from torch.nn.functional import logsigmoid, one_hot
from torchvision.ops import sigmoid_focal_loss

from vitlab.losses import focal_cross_entropy, sigmoid_cross_entropy, softmax_cross_entropy

GAMMA = 1.5


def softmax_written_out(logits, q, w, gamma=0.0):
    """-Σₖ wₖ qₖ (1 - pₖ)^γ log pₖ in float64."""
    e = logits.double().exp()
    p = e / e.sum(dim=1, keepdim=True)
    return -(w * q * (1 - p) ** gamma * p.log()).sum(dim=1)


def sigmoid_written_out(logits, q, w):
    """-Σₖ (wₖ qₖ log pₖ + (1 - qₖ) log(1 - pₖ)) in float64."""
    p = 1 / (1 + (-logits.double()).exp())
    return -(w * q * p.log() + (1 - q) * (1 - p).log()).sum(dim=1)


LOSSES = {
    "softmax": (softmax_cross_entropy, {}, softmax_written_out),
    "sigmoid": (sigmoid_cross_entropy, {"over_classes": "sum"}, sigmoid_written_out),
    "sigmoid_mean": (
        sigmoid_cross_entropy,
        {"over_classes": "mean"},
        lambda z, q, w: sigmoid_written_out(z, q, w) / z.shape[1],
    ),
    "focal": (focal_cross_entropy, {"gamma": GAMMA}, lambda z, q, w: softmax_written_out(z, q, w, GAMMA)),
    "focal_root": (focal_cross_entropy, {"gamma": 0.5}, lambda z, q, w: softmax_written_out(z, q, w, 0.5)),
}
each = pytest.mark.parametrize("name", LOSSES)


@each
@given(
    seed=st.integers(0, 2**32),
    B=st.integers(1, 5),
    K=st.integers(2, 6),
    smoothing=st.floats(0, 0.9),
    soft=st.booleans(),
    weighted=st.booleans(),
)
@settings(deadline=None, max_examples=50)
def test_loss_and_gradient_of_each_sample_are_the_formulas(name, seed, B, K, smoothing, soft, weighted):
    function, options, written_out = LOSSES[name]
    generator = torch.Generator().manual_seed(seed)
    logits = (torch.randn(B, K, generator=generator) * 3).requires_grad_()
    classes = torch.randint(K, (B,), generator=generator)
    probabilities = torch.rand(B, K, generator=generator).softmax(dim=1) if soft else one_hot(classes, K)
    weights = torch.rand(K, generator=generator) * 2 if weighted else None
    loss = function(
        logits, probabilities if soft else classes, label_smoothing=smoothing, class_weights=weights, **options
    )
    q = (1 - smoothing) * probabilities.double() + smoothing / K
    expected = written_out(logits, q, torch.ones(K) if weights is None else weights)
    torch.testing.assert_close(loss, expected.float(), atol=1e-5, rtol=1e-4)
    slope, wanted = (torch.autograd.grad(value.sum(), logits)[0] for value in (loss, expected))
    torch.testing.assert_close(slope, wanted, atol=1e-5, rtol=1e-4)


@each
def test_a_class_and_its_one_hot_vector_are_the_same_target(name):
    function, options, _ = LOSSES[name]
    logits, classes, weights = torch.randn(4, 3), torch.tensor([0, 2, 1, 1]), torch.tensor([0.5, 1.0, 2.0])
    targets = (classes, one_hot(classes, 3), one_hot(classes, 3).float())
    losses = [function(logits, q, label_smoothing=0.1, class_weights=weights, **options) for q in targets]
    torch.testing.assert_close(losses[0], losses[1])
    torch.testing.assert_close(losses[0], losses[2])


@each
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_logits_of_half_precision_are_summed_in_single(name, dtype):
    function, options, written_out = LOSSES[name]
    logits, classes = (torch.randn(4, 1000) * 3).to(dtype), torch.tensor([0, 10, 100, 999])
    loss = function(logits, classes, **options)
    assert loss.dtype == torch.float32
    expected = written_out(logits, one_hot(classes, 1000), torch.ones(1000))
    torch.testing.assert_close(loss, expected.float(), atol=1e-4, rtol=1e-5)


@each
def test_certainty_costs_no_nan(name):
    function, options, _ = LOSSES[name]
    logits = torch.tensor([[200.0, -200.0], [-200.0, 200.0]], requires_grad=True)
    loss = function(logits, torch.tensor([0, 0]), **options)
    (slope,) = torch.autograd.grad(loss.sum(), logits)
    assert torch.isfinite(loss).all()
    assert torch.isfinite(slope).all()
    assert loss[0] == 0
    assert loss[1] >= 200
    assert (slope[1] != 0).any()


@each
@pytest.mark.parametrize("smoothing", [-0.1, 1.0])
def test_a_label_smoothing_out_of_range_is_refused(name, smoothing):
    function, options, _ = LOSSES[name]
    with pytest.raises(ValueError, match=f"label_smoothing {smoothing} is not in"):
        function(torch.zeros(1, 3), torch.tensor([0]), label_smoothing=smoothing, **options)


# -- softmax


def test_equal_logits_cost_the_logarithm_of_the_number_of_classes():
    loss = softmax_cross_entropy(torch.zeros(2, 10), torch.tensor([3, 7]))
    torch.testing.assert_close(loss, torch.full((2,), 10.0).log())


def test_softmax_of_soft_targets_is_timms():
    logits, target = torch.randn(8, 5), torch.randn(8, 5).softmax(dim=1)
    torch.testing.assert_close(softmax_cross_entropy(logits, target).mean(), SoftTargetCrossEntropy()(logits, target))


# -- sigmoid


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("sum_classes", [False, True])
def test_sigmoid_of_classes_is_timms(smoothing, sum_classes):
    logits, classes = torch.randn(8, 5), torch.randint(5, (8,))
    over = "sum" if sum_classes else "mean"
    loss = sigmoid_cross_entropy(logits, classes, label_smoothing=smoothing, over_classes=over)
    timms = BinaryCrossEntropy(smoothing=smoothing, sum_classes=sum_classes)
    torch.testing.assert_close(loss.mean(), timms(logits, classes))


def test_sigmoid_may_want_every_class_of_a_mixed_image_wholly():
    logits, shares = torch.randn(8, 5), torch.zeros(8, 5)
    shares[:, 1], shares[:, 3] = 0.8, 0.2
    timms = BinaryCrossEntropy(smoothing=0.0, target_threshold=0.0)
    loss = sigmoid_cross_entropy(logits, shares, over_classes="mean", whole=True)
    torch.testing.assert_close(loss.mean(), timms(logits, shares))


def test_several_labels_are_questions_apart():
    logits, labels = torch.randn(4, 3), torch.tensor([[1, 1, 0], [0, 0, 0], [1, 1, 1], [0, 1, 0]])
    expected = -torch.where(labels == 1, logsigmoid(logits), logsigmoid(-logits)).sum(dim=1)
    torch.testing.assert_close(sigmoid_cross_entropy(logits, labels), expected)


def test_sigmoid_refuses_other_ways_over_classes():
    with pytest.raises(ValueError, match="'max' is not one of: sum, mean"):
        sigmoid_cross_entropy(torch.zeros(1, 3), torch.tensor([0]), over_classes="max")


# -- focal


def test_focal_without_gamma_is_the_cross_entropy():
    logits, classes, weights = torch.randn(8, 5), torch.randint(5, (8,)), torch.rand(5)
    losses = [
        function(logits, classes, label_smoothing=0.1, class_weights=weights)
        for function in (focal_cross_entropy, softmax_cross_entropy)
    ]
    torch.testing.assert_close(*losses)


@pytest.mark.parametrize("gamma", [0.5, 2.0])
def test_focal_of_two_classes_is_torchvisions_of_their_difference(gamma):
    logits, classes = torch.randn(8, 2) * 3, torch.randint(2, (8,))
    expected = sigmoid_focal_loss(logits[:, 1] - logits[:, 0], classes.float(), alpha=-1, gamma=gamma)
    torch.testing.assert_close(focal_cross_entropy(logits, classes, gamma=gamma), expected)
    weights = torch.tensor([0.75, 0.25])  # torchvision's alpha is the weight of class 1
    expected = sigmoid_focal_loss(logits[:, 1] - logits[:, 0], classes.float(), alpha=0.25, gamma=gamma)
    torch.testing.assert_close(focal_cross_entropy(logits, classes, gamma=gamma, class_weights=weights), expected)


def test_focal_refuses_a_negative_gamma():
    with pytest.raises(ValueError, match=r"gamma -0.5 is negative"):
        focal_cross_entropy(torch.zeros(1, 3), torch.tensor([0]), gamma=-0.5)
