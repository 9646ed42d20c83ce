"""The features that a finished run gives, for tests of what is computed from them."""

import numpy as np
import torch

from vitlab.run.inference.saved_run import SavedRun


def features_of(run, path):
    assert run.status == 0, run.err
    with np.load(path, allow_pickle=False) as arrays:
        return dict(arrays)


def represented(folder, images):
    """What the model of a run makes of uint8 images (n, C, H, W), by the run's own mean and std."""
    saved = SavedRun.open(str(folder))
    data, model = saved.config.data, saved.task().model.eval()
    mean, std = (torch.tensor(list(values)).view(1, -1, 1, 1) for values in (data.mean, data.std))
    with torch.no_grad():
        return model.represent((images / 255 - mean) / std).numpy()
