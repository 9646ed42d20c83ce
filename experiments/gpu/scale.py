"""The device and the sizes of a proof, in one place: what fills a GPU, or so little that a CPU does all of it soon."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Scale:
    """Sizes of `model`, the large one, are those of every training run that is measured, float8's apart; `small` is for
    runs that only have to go through something."""

    device: str  # cuda or cpu
    trainer: tuple[str, ...]  # overrides of every run
    accelerator: str  # as Lightning names it
    compiler: str  # torch.compile's backend
    model: tuple[str, ...]
    small: tuple[str, ...]
    wide: tuple[str, ...]  # whose layers gain from float8
    image_size: int
    batch: int
    num_images: int
    few_images: int  # of the run of many epochs
    steps: int
    lr: float
    log_every: int
    epochs: int  # of the run whose memory must stay flat
    kept_mib: int  # by which its memory may grow after the first epochs
    attention: tuple[int, int, int, int]  # batch, heads, tokens, width
    rounds: int  # of a benchmark
    benchmark: tuple[str, int, int, int, int, int, int, int]  # a Row of training_step.py
    most_epochs: int  # on CIFAR-10
    least_accuracy: float  # there, if the time was enough for ten epochs


GPU = Scale(
    device="cuda",
    trainer=("trainer=gpu",),
    accelerator="gpu",
    compiler="inductor",
    model=("model=vit_b16",),
    small=("model=vit_s16", "model.depth=4", "data.image_size=128"),  # three times fewer pixels to compute
    wide=("model=vit_l16", "model.depth=8"),
    image_size=224,
    batch=256,
    num_images=2048,
    few_images=1024,
    steps=60,
    lr=3e-4,
    log_every=10,
    epochs=40,
    kept_mib=64,
    attention=(256, 12, 197, 64),
    rounds=15,
    benchmark=("vit_b16", 224, 16, 768, 12, 256, 1000, 12),
    most_epochs=200,
    least_accuracy=0.6,
)

CPU = Scale(
    device="cpu",
    trainer=("trainer=cpu", "trainer.precision=32-true", "data.loading.num_workers=0"),
    accelerator="cpu",
    compiler="aot_eager",
    model=("model=vit_mu4", "model.depth=1"),
    small=("model=vit_mu4", "model.depth=1"),
    wide=("model=vit_mu4", "model.depth=1"),
    image_size=16,
    batch=16,
    num_images=256,
    few_images=256,
    steps=20,
    lr=1e-2,
    log_every=4,
    epochs=8,
    kept_mib=256,
    attention=(2, 2, 17, 8),
    rounds=2,
    benchmark=("vit_mu4", 16, 4, 32, 2, 4, 10, 2),
    most_epochs=2,
    least_accuracy=0.0,
)
