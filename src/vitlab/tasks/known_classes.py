"""Tell images of none of the classes by their features, which no class explains better than all images do.

The relative Mahalanobis distance of Ren et al., 2021, arXiv:2106.09022, section 3: classes as normal distributions with
one covariance, beside one distribution of all training images. It was chosen among five scores by
experiments/study/unknown_inputs.py, as the one that does well on digits and on photographs.

n samples, K classes, D features
"""

from typing import NamedTuple

import torch
from torch import Tensor


class KnownClasses(NamedTuple):
    """The relative distance of features x, less the `mean` (D,) of all, as one function of second degree,
    xᵀ C x + min over classes k of (bₖ - 2 xᵀ sₖ): `curvature` C (D, D) is the precision matrix within classes less that
    of all; `slopes` s (D, K), `offsets` b (K,). Then what is `typical` of known images, and the `threshold`, beyond
    which an image is of none of the classes. Two distances apart would lose digits where classes overlap."""

    mean: Tensor
    curvature: Tensor
    slopes: Tensor
    offsets: Tensor
    typical: float = 0.0
    threshold: float = 1.0

    @classmethod
    def fit(cls, features: Tensor, target: Tensor) -> "KnownClasses":
        """Fit means and covariances to training images, (n, D) and (n,)."""
        features = features.double()
        classes, own = target.unique(return_inverse=True)
        mean = features.mean(dim=0)
        means = torch.stack([features[own == k].mean(dim=0) for k in range(len(classes))])
        within, among = estimate_precision(features - means[own]), estimate_precision(features - mean)
        slopes = within @ (means - mean).T
        offsets = ((means - mean).T * slopes).sum(dim=0)
        return cls(mean.float(), (within - among).float(), slopes.float(), offsets.float())

    def accept(self, features: Tensor, false_alarm_rate: float) -> "KnownClasses":
        """Set the threshold at which that share of known images (n, D) is taken for unknown."""
        distances = self.measure(features)
        typical, threshold = distances.quantile(torch.tensor([0.5, 1 - false_alarm_rate])).tolist()
        return self._replace(typical=typical, threshold=max(threshold, typical + 1e-6 * (1 + abs(typical))))

    def measure(self, features: Tensor) -> Tensor:
        """Compute the squared distance to the nearest class, less that to the mean of all images. (n, D) -> (n,)"""
        centred = features - self.mean  # without it, the products below would lose three digits
        nearest = (self.offsets - 2 * centred @ self.slopes).amin(dim=1)
        return (centred @ self.curvature * centred).sum(dim=1) + nearest

    def compute_novelty(self, features: Tensor) -> Tensor:
        """Compute how unusual images are: 0 like the median of known images, above 1 of none of the classes.
        (n, D) -> (n,), in float32 also under autocast"""
        with torch.autocast(features.device.type, enabled=False):
            return self.scale(self.measure(features.float()))

    def scale(self, distances: Tensor) -> Tensor:
        """Scale distances (n,) so that 0 is typical and 1 the threshold."""
        return (distances - self.typical) / (self.threshold - self.typical)

    def to(self, device: torch.device) -> "KnownClasses":
        """Return the same on another device."""
        return KnownClasses._make(part.to(device) if isinstance(part, Tensor) else part for part in self)


def estimate_precision(centred: Tensor) -> Tensor:
    """Compute the inverse of the covariance of centred features (n, D), which is first shrunk as in Ledoit & Wolf,
    2004, doi:10.1016/S0047-259X(03)00096-4; zeros where no feature ever changes. -> (D, D)"""
    from sklearn.covariance import ledoit_wolf

    if not centred.any():
        return centred.T @ centred
    covariance = torch.from_numpy(ledoit_wolf(centred.numpy(), assume_centered=True)[0])
    values, vectors = torch.linalg.eigh(covariance)
    return vectors / values.clamp_min(1e-12 * values.max()) @ vectors.T
