"""Calibrate probabilities by one temperature T, p = softmax(z / T), and measure how well they are calibrated.

Guo et al., 2017, arXiv:1706.04599, section 4.2. Several classes an image are K questions, each with a sigmoid.

n samples, K classes, B bins, z logits, p probabilities, c confidence: the probability of what is predicted
"""

import math

import torch
import torch.nn.functional as F
from scipy.optimize import minimize_scalar
from torch import Tensor

BINS = 15
LOG_RANGE = 4.0  # of log T
PRIOR = 1.0  # standard deviation of log T before any sample is seen: a split without a mistake gives no certainty


def fit_temperature(logits: Tensor, target: Tensor) -> float:
    """Return the temperature at which the samples are most probable, with a weak prior at 1. (n, K), (n,) or (n, K)"""
    logits = logits.double()

    def loss(log_t: float) -> float:
        z = logits / math.exp(log_t)
        if target.ndim == 2:
            total = F.binary_cross_entropy_with_logits(z, target.double(), reduction="sum")
        else:
            total = F.cross_entropy(z, target, reduction="sum")
        return float(total) + log_t**2 / (2 * PRIOR**2)

    found = minimize_scalar(loss, bounds=(-LOG_RANGE, LOG_RANGE), method="bounded")
    return math.exp(found.x)


def measure_calibration(p: Tensor, target: Tensor) -> dict[str, float]:
    """Measure the expected calibration error in bins of equal width and of equal counts (Nixon et al., 2019,
    arXiv:1904.01685), Brier score and negative log-likelihood in nats. (n, K) and (n,) or (n, K)"""
    if target.ndim == 2:
        p, target = torch.stack([1 - p, p], dim=-1).flatten(0, 1), target.flatten().long()
    c, predicted = p.double().max(dim=1)
    right = (predicted == target).double()
    edges = torch.linspace(0, 1, BINS + 1, dtype=torch.float64)
    width = torch.bucketize(c, edges[1:-1])
    one_hot = F.one_hot(target, p.shape[1])
    return {
        "ece": calibration_error(c, right, width),
        "adaptive_ece": adaptive_calibration_error(c, right),
        "brier": float((p.double() - one_hot).square().sum(dim=1).mean()),
        "nll": float(negative_log_likelihood(p, target).double().mean()),
    }


def calibration_error(c: Tensor, right: Tensor, bins: Tensor) -> float:
    """Σ over bins of their share of the samples times |accuracy - mean confidence|: Guo et al., equation 3."""
    difference = torch.zeros(BINS, dtype=torch.float64).index_add(0, bins, right - c)
    return float(difference.abs().sum() / len(c))


def adaptive_calibration_error(c: Tensor, right: Tensor) -> float:
    """Compute the calibration error in bins of equal counts. (n,), (n,)"""
    return calibration_error(c, right, torch.argsort(torch.argsort(c)) * BINS // len(c)) if len(c) else math.nan


def negative_log_likelihood(p: Tensor, target: Tensor) -> Tensor:
    """-log of the probability of the true class, in nats. (n, K), (n,) -> (n,)"""
    of_true = p.float().gather(1, target[:, None])[:, 0]
    return -of_true.clamp_min(torch.finfo(torch.float32).tiny).log()
