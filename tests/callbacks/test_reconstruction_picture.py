"""What is drawn of a masked autoencoder: gray where it saw nothing, and at which validations."""

from types import SimpleNamespace

import torch

from vitlab.callbacks import ReconstructionPicture
from vitlab.callbacks.reconstruction_picture import triples
from vitlab.data.batches.batch import RawBatch
from vitlab.data.batches.preprocessing import Preprocessing


def test_hidden_patches_are_gray_and_the_rest_is_the_image():
    preprocessing = Preprocessing(mean=[0.4, 0.5], std=[0.2, 0.3], in_chans=2, patch_size=4)
    images = torch.randint(0, 256, (3, 2, 8, 12), dtype=torch.uint8)
    batch = preprocessing.finish_batch(RawBatch((images,), torch.zeros(3), torch.arange(3)))
    mask = torch.zeros(3, 6, dtype=torch.bool)
    mask[0, 4] = mask[2, 0] = True  # the second row's middle, and the first row's left
    predicted = torch.where(mask[..., None], 1000.0, batch.view.inputs)
    drawn = triples(predicted, mask, batch, preprocessing)
    assert len(drawn) == 9
    assert all(picture.min() >= 0 and picture.max() <= 1 for picture in drawn)
    seen, prediction, whole = (torch.stack(drawn[place::3]) for place in range(3))
    hidden = torch.zeros(3, 1, 8, 12, dtype=torch.bool)
    hidden[0, :, 4:, 4:8] = hidden[2, :, :4, :4] = True
    torch.testing.assert_close(whole, images / 255)
    torch.testing.assert_close(seen, whole.masked_fill(hidden, 0.5))
    torch.testing.assert_close(prediction, whole.masked_fill(hidden, 1.0))


def test_every_nth_validation_is_drawn_and_the_sanity_check_is_not(monkeypatch):
    callback, drawn = ReconstructionPicture(num_images=1, every_n_validations=3), []
    monkeypatch.setattr(callback, "draw", lambda trainer, task, split, when: drawn.append((split, when)))
    for step, sanity in enumerate([True, *[False] * 7]):
        callback.on_validation_epoch_end(SimpleNamespace(sanity_checking=sanity, global_step=step), None)
    assert drawn == [("val", ", after 3 steps"), ("val", ", after 6 steps")]
