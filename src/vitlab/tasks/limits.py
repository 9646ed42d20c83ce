"""Tell whether Lightning's limits leave samples out."""

import pytorch_lightning as pl


def partial_evaluation(trainer: pl.Trainer) -> bool:
    """Whether this trainer leaves samples out on purpose: fast_dev_run or limit_val_batches, limit_test_batches."""
    limit = trainer.limit_val_batches if trainer.validating or trainer.training else trainer.limit_test_batches
    return bool(trainer.fast_dev_run) or trainer.sanity_checking or leaves_out(limit)


def leaves_out(limit: int | float) -> bool:
    """Whether a limit of Lightning's is below everything: 1.0 is all batches, and 1 is one."""
    return isinstance(limit, int) or limit != 1.0
