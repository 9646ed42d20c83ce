"""Plain values become objects."""

from torchvision.transforms.v2 import Compose, RandomGrayscale

from vitlab.config.build import construct


def test_nodes_among_positional_arguments_are_built():
    inner = {"_target_": "torchvision.transforms.v2.RandomGrayscale", "p": 0.5}
    made = construct({"_target_": "torchvision.transforms.v2.Compose", "_args_": [[inner]]}, "augmentation")
    assert isinstance(made, Compose)
    assert isinstance(made.transforms[0], RandomGrayscale)
