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
    """The mean of all features (D,); `whitening` (D, D) gives centred features a covariance of 1 within classes, whose
    means (D, K) it then has, and `spreading` (D, D) one of 1 in all; what is `typical` of known images; and the
    `threshold` beyond which an image is of none of the classes."""

    mean: Tensor
    whitening: Tensor
    means: Tensor
    spreading: Tensor
    typical: float = 0.0
    threshold: float = 1.0

    @classmethod
    def fit(cls, features: Tensor, target: Tensor) -> "KnownClasses":
        """Fit means and covariances to training images, (n, D) and (n,)."""
        features = features.double()
        classes, own = target.unique(return_inverse=True)
        mean = features.mean(dim=0)
        means = torch.stack([features[own == k].mean(dim=0) for k in range(len(classes))])
        whitening, spreading = compute_whitening(features - means[own]), compute_whitening(features - mean)
        placed = ((means - mean) @ whitening).T.contiguous()
        return cls(mean.float(), whitening.float(), placed.float(), spreading.float())

    def accept(self, features: Tensor, false_alarm_rate: float) -> "KnownClasses":
        """Set the threshold at which that share of known images (n, D) is taken for unknown."""
        distances = self.measure(features)
        typical, threshold = distances.quantile(torch.tensor([0.5, 1 - false_alarm_rate])).tolist()
        return self._replace(typical=typical, threshold=max(threshold, typical + 1e-6 * (1 + abs(typical))))

    def measure(self, features: Tensor) -> Tensor:
        """Compute the squared distance to the nearest class, less that to the mean of all images. (n, D) -> (n,)"""
        centred = features - self.mean  # without it, the products below would lose three digits
        within, among = centred @ self.whitening, centred @ self.spreading
        distances = within.square().sum(dim=1, keepdim=True) - 2 * within @ self.means + self.means.square().sum(dim=0)
        return distances.amin(dim=1) - among.square().sum(dim=1)

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


def compute_whitening(centred: Tensor) -> Tensor:
    """Compute the map that gives centred features (n, D) a covariance of 1, which is first shrunk as in Ledoit & Wolf,
    2004, doi:10.1016/S0047-259X(03)00096-4. -> (D, D)"""
    from sklearn.covariance import ledoit_wolf

    covariance = torch.from_numpy(ledoit_wolf(centred.numpy(), assume_centered=True)[0])
    values, vectors = torch.linalg.eigh(covariance)
    return vectors * values.clamp_min(1e-12 * values.max()).rsqrt()
