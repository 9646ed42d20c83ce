"""Choose which samples come when, besides the seed."""

from vitlab.errors import ConfigError


class Order:
    """`class_balance`: 1: each class comes as often as the others; 0.5: half way (square root); 0: as often as it is
    there. `repeats`: times an image stands in a batch, augmented differently. `shuffle_window`: shards whose samples
    are shuffled together; None: all. Raises ConfigError for values out of range, and for the first and last
    together."""

    def __init__(self, *, class_balance: float, repeats: int, shuffle_window: int | None):
        if not 0 <= class_balance <= 1:
            raise ConfigError(f"data.order.class_balance {class_balance} is not in [0, 1]")
        if repeats < 1:
            raise ConfigError(f"data.order.repeats {repeats} is not at least 1")
        if shuffle_window is not None and shuffle_window < 1:
            raise ConfigError(f"data.order.shuffle_window {shuffle_window} is not at least 1")
        if class_balance and shuffle_window is not None:
            raise ConfigError(
                f"data.order.class_balance {class_balance} draws from all shards, not from the few of "
                f"data.order.shuffle_window {shuffle_window}; set one of them to 0 or null"
            )
        self.class_balance = class_balance
        self.repeats = repeats
        self.shuffle_window = shuffle_window
