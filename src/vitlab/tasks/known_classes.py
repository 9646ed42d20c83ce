"""Tell images of none of the classes by their features, which are far from those of every class.

Lee et al., 2018, arXiv:1807.03888, section 2: classes as normal distributions with one covariance. It was chosen among
three scores by experiments/study/unknown_inputs.py, where it tells images of another kind, but no classes that resemble
the known ones.

n samples, K classes, D features
"""

from typing import NamedTuple

import torch
from torch import Tensor


class KnownClasses(NamedTuple):
    """Class means (K, D) after `whitening` (D, D), which gives features a covariance of 1 within classes, and the
    distance beyond which an image is of none of the classes."""

    means: Tensor
    whitening: Tensor
    threshold: float

    @classmethod
    def fit(cls, features: Tensor, target: Tensor) -> "KnownClasses":
        """Fit means and covariance to training images, (n, D) and (n,), with the shrinkage of Ledoit & Wolf, 2004,
        doi:10.1016/S0047-259X(03)00096-4. The threshold is infinite."""
        from sklearn.covariance import ledoit_wolf

        features = features.double()
        classes, own = target.unique(return_inverse=True)
        means = torch.stack([features[own == k].mean(dim=0) for k in range(len(classes))])
        covariance = torch.from_numpy(ledoit_wolf((features - means[own]).numpy(), assume_centered=True)[0])
        values, vectors = torch.linalg.eigh(covariance)
        whitening = vectors * values.clamp_min(1e-12 * values.max()).rsqrt()
        return cls((means @ whitening).float(), whitening.float(), float("inf"))

    def accept(self, features: Tensor, false_alarm_rate: float) -> "KnownClasses":
        """Set the threshold at which that share of known images (n, D) is taken for unknown."""
        distances = self._replace(threshold=1.0).compute_novelty(features)
        return self._replace(threshold=float(distances.quantile(1 - false_alarm_rate)))

    def compute_novelty(self, features: Tensor) -> Tensor:
        """Compute the distance to the nearest class as a multiple of the threshold: above 1, the image is of none of
        the classes. (n, D) -> (n,), in float32 also under autocast"""
        with torch.autocast(features.device.type, enabled=False):
            exact = "donot_use_mm_for_euclid_dist"  # products of matrices, from 25 rows on, lose three digits
            distances = torch.cdist(features.float() @ self.whitening, self.means, compute_mode=exact)
            return distances.amin(dim=1) / self.threshold

    def to(self, device: torch.device) -> "KnownClasses":
        """Return the same on another device."""
        return self._replace(means=self.means.to(device), whitening=self.whitening.to(device))
