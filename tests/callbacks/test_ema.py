"""From its first update on, the average is what gets validated and kept; before that, the weights themselves."""

import pytest
import pytorch_lightning as pl
import torch
from torch.utils.data import DataLoader, TensorDataset

from vitlab.callbacks import EMA

DECAY = 0.7
EPOCHS, STEPS = 3, 4


class Line(pl.LightningModule):
    """A linear model that writes down its weights: after each step, in validation, at the next step's start."""

    def __init__(self, folder):
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(3, 1)
        self.folder = folder
        self.after_step, self.validated, self.restored = {}, {}, {}

    def weight(self):
        return self.layer.weight.detach().clone()

    def training_step(self, batch, batch_idx):
        self.restored[self.global_step] = self.weight()
        return (self.layer(batch[0]) - 1).square().mean()

    def on_train_batch_end(self, outputs, batch, batch_idx):
        self.after_step[self.global_step] = self.weight()

    def validation_step(self, batch, batch_idx):
        self.validated[self.global_step] = self.weight()

    def on_train_epoch_end(self):
        self.trainer.save_checkpoint(self.folder / f"{self.global_step}.ckpt")

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def fitted(folder, start_step, accumulation=1):
    data = TensorDataset(torch.randn(STEPS * accumulation * 2, 3, generator=torch.Generator().manual_seed(0)))
    ema = EMA(decay=DECAY, start_step=start_step)
    trainer = pl.Trainer(
        max_epochs=EPOCHS,
        accumulate_grad_batches=accumulation,
        accelerator="cpu",
        callbacks=[ema],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )
    model = Line(folder)
    trainer.fit(model, DataLoader(data, batch_size=2), DataLoader(data, batch_size=4))
    return model, ema


def average(model, start_step, step):
    """The average after a step, by hand; None before its first update."""
    mean = None
    for number in range(start_step, step):  # optimizer step `number`, counted from 0, leads to state number + 1
        weight = model.after_step[number + 1]
        mean = weight if mean is None else DECAY * mean + (1 - DECAY) * weight
    return mean


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("start_step", "accumulation"), [(0, 1), (5, 1), (100, 1), (5, 2)])
def test_the_average_takes_the_place_of_the_weights_from_its_first_update_on(tmp_path, start_step, accumulation):
    model, ema = fitted(tmp_path, start_step, accumulation)
    assert list(model.validated) == [STEPS, 2 * STEPS, 3 * STEPS]
    for step in model.validated:
        raw, mean = model.after_step[step], average(model, start_step, step)
        saved = torch.load(tmp_path / f"{step}.ckpt", weights_only=True)
        if mean is None:
            assert torch.equal(model.validated[step], raw)
            assert torch.equal(saved["state_dict"]["layer.weight"], raw)
        else:
            assert not torch.allclose(mean, raw, atol=1e-4) or step == start_step + 1
            torch.testing.assert_close(model.validated[step], mean)
            torch.testing.assert_close(saved["state_dict"]["layer.weight"], mean)
        assert torch.equal(saved["current_model_state"]["layer.weight"], raw)  # both are in the latest state
        if step in model.restored:
            assert torch.equal(model.restored[step], raw)  # training goes on with the weights themselves
    last, mean = model.after_step[EPOCHS * STEPS], average(model, start_step, EPOCHS * STEPS)
    torch.testing.assert_close(model.weight(), last if mean is None else mean)
    assert (ema.state_dict_of_average() is None) == (mean is None)
    if mean is not None:
        torch.testing.assert_close(ema.state_dict_of_average()["layer.weight"], mean)


@pytest.mark.parametrize("decay", [0, 1, -0.5, 1.5])
def test_a_decay_outside_zero_and_one_is_refused(decay):
    with pytest.raises(ValueError, match=f"decay {decay}"):
        EMA(decay=decay, start_step=0)
