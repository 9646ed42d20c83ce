"""Annotate the numbers that constructors of other libraries take, which say no ranges."""

from typing import Annotated, Any

from vitlab.ranges import Count, Natural, Positive, Range, Rate, Real, Share, Unsigned

Start = Annotated[int, Range(least=-1)]  # -1: never, or all
Batches = Count | Annotated[float, Range(above=0, most=1)]  # a number of them, or a share of an epoch's
Change = Unsigned | tuple[Unsigned, Unsigned]
Hue = Annotated[float, Range(least=-0.5, most=0.5)]

OPTIMIZERS: dict[str, Any] = {
    "lr": Positive,
    "betas": tuple[Rate, Rate],
    "eps": Unsigned,
    "weight_decay": Unsigned,
    "momentum": Rate,
    "dampening": Share,
    "max_grad_norm": Positive | None,
    "trust_coeff": Positive,
    "ns_steps": Count,
    "ns_coefficients": str | tuple[Real, Real, Real] | list[tuple[Real, Real, Real]],
    "safety_factor": Positive,
    "adamw_lr": Positive | None,
    "fallback_lr_scale": Positive,
}
TRANSFORMS: dict[str, Any] = {
    "p": Share | list[Share] | None,
    "severity": Annotated[int, Range(least=1, most=10)],
    "mixture_width": Annotated[int, Range(least=1, most=100)],
    "chain_depth": Annotated[int, Range(least=-1, most=100)],
    "alpha": Positive,
    "num_ops": Annotated[int, Range(least=0, most=100)],
    "magnitude": Annotated[int, Range(least=0, most=1000)],
    "num_magnitude_bins": Annotated[int, Range(least=2, most=1001)],
    "threshold": Real,
    **dict.fromkeys(("brightness", "contrast", "saturation"), Change | None),
    "hue": Annotated[float, Range(least=0, most=0.5)] | tuple[Hue, Hue] | None,
    "translate": tuple[Share, Share] | None,
    "scale": tuple[Positive, Positive] | None,
    "shear": Unsigned | list[Real] | None,
    "center": tuple[Real, Real] | None,
    "degrees": Unsigned | tuple[Real, Real],
    "interpolation": str | Annotated[int, Range(least=0, most=5)],  # of Pillow
    "fill": Real | list[Real] | None,
}
TRAINER: dict[str, Any] = {
    **dict.fromkeys(("log_every_n_steps", "num_nodes"), Count),
    "check_val_every_n_epoch": Count | None,
    **dict.fromkeys(("min_epochs", "min_steps"), Natural | None),
    "reload_dataloaders_every_n_epochs": Natural,
    "max_epochs": Start | None,
    **dict.fromkeys(("max_steps", "num_sanity_val_steps"), Start),
    **dict.fromkeys(("limit_train_batches", "val_check_interval"), Batches | None),
    **dict.fromkeys(("limit_val_batches", "limit_test_batches", "limit_predict_batches"), Natural | Share | None),
    "devices": Start | str | list[Natural],
    "gradient_clip_val": Positive | None,
}
BY_PACKAGE = dict.fromkeys(("torch.optim", "timm.optim", "vitlab.optim.muon"), OPTIMIZERS)
BY_PACKAGE |= {"torchvision.transforms": TRANSFORMS, "pytorch_lightning.trainer": TRAINER}
