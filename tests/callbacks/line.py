"""A model so small that what averaging does to it can be followed by hand."""

import pytorch_lightning as pl
import torch
from torch.utils.data import DataLoader, TensorDataset

EPOCHS, STEPS = 3, 4  # and optimizer steps of each


class Line(pl.LightningModule):
    """A linear model that writes down its weights: after each step, in validation, at the next step's start.

    `norms` are the running means of its BatchNorm after each step, `validated_norms` those in validation, and `outputs`
    what it says of the last batch there.
    """

    def __init__(self, folder, num_steps):
        super().__init__()
        torch.manual_seed(0)
        self.norm = torch.nn.BatchNorm1d(3)
        self.layer = torch.nn.Linear(3, 1)
        self.folder, self.num_steps = folder, num_steps
        self.after_step, self.validated, self.restored = {}, {}, {}
        self.norms, self.validated_norms, self.outputs = {}, {}, {}

    def weight(self):
        return self.layer.weight.detach().clone()

    def training_step(self, batch, batch_idx):
        self.restored[self.global_step] = self.weight()
        return (self.layer(self.norm(batch[0])) - 1).square().mean()

    def on_train_batch_end(self, outputs, batch, batch_idx):
        self.after_step[self.global_step] = self.weight()
        self.norms.setdefault(self.global_step, self.norm.running_mean.clone())  # before the next micro-batch

    def validation_step(self, batch, batch_idx):
        self.validated[self.global_step] = self.weight()
        self.validated_norms[self.global_step] = self.norm.running_mean.clone()
        self.outputs[self.global_step] = self.layer(self.norm(batch[0]))

    def on_train_epoch_end(self):
        self.trainer.save_checkpoint(self.folder / f"{self.global_step}.ckpt")

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.5)


def fitted(folder, average, accumulation=1, epochs=EPOCHS, resume=None, kind=Line, others=()):
    """A Line, trained for some epochs of STEPS optimizer steps, whose checkpoints are <step>.ckpt, with other callbacks
    around the average."""
    data = TensorDataset(torch.randn(STEPS * accumulation * 2, 3, generator=torch.Generator().manual_seed(0)))
    trainer = pl.Trainer(
        max_epochs=epochs,
        accumulate_grad_batches=accumulation,
        accelerator="cpu",
        callbacks=[*others[:1], average, *others[1:]],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )
    model = kind(folder, EPOCHS * STEPS)
    trainer.fit(model, DataLoader(data, batch_size=2), DataLoader(data, batch_size=4), ckpt_path=resume)
    return model


def check_places(model, average, mean_after):
    """The average stands where it should from its first update on, and nowhere before or else.

    `mean_after(step)` is what the average should be after a step; None before its first update.
    """
    assert list(model.validated) == [STEPS, 2 * STEPS, 3 * STEPS]
    for step in model.validated:
        raw, mean = model.after_step[step], mean_after(step)
        saved = torch.load(model.folder / f"{step}.ckpt", weights_only=True)
        if mean is None:
            assert torch.equal(model.validated[step], raw)
            assert torch.equal(saved["state_dict"]["layer.weight"], raw)
        else:
            torch.testing.assert_close(model.validated[step], mean)
            torch.testing.assert_close(saved["state_dict"]["layer.weight"], mean)
        assert torch.equal(model.validated_norms[step], model.norms[step])  # the newest statistics, not averaged
        assert torch.equal(saved["state_dict"]["norm.running_mean"], model.norms[step])
        assert torch.equal(saved["current_model_state"]["layer.weight"], raw)  # both are in the latest state
        if step in model.restored:
            assert torch.equal(model.restored[step], raw)  # training goes on with the weights themselves
    last, mean = model.after_step[EPOCHS * STEPS], mean_after(EPOCHS * STEPS)
    torch.testing.assert_close(model.weight(), last if mean is None else mean)
    assert (average.averages == {}) == (mean is None)
