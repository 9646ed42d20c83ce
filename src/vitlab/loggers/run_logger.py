"""What a run asks of a logger beside what Lightning does."""

import warnings
from collections.abc import Callable
from typing import Any

from pytorch_lightning.loggers.logger import Logger


class RunLogger(Logger):
    """A logger of a run. It is built from a YAML of conf/logger/; of the keywords `folder`, `name`, `group`, `run_id`,
    `first_step`, `run_config` (without secrets) and `arguments` it is given those that its constructor has.

    It may also have `log_image(key, images, step)`, of files, and `log_table(key, columns, data)`.
    """

    service = ""  # its name, in warnings
    broken = False

    def close(self, exit_code: int) -> None:
        """Say that the run has ended, however it did: `exit_code` is 0 after success, and 128 + its number after a
        signal. The process may begin others."""

    def upload_command(self) -> str | None:
        """Give the command that sends to a server what was logged without one; None where there is nothing to send."""
        return None

    def guard(self, log: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        """Log something; a service that fails takes its records with it, not the training run: one warning, and it is
        called no more."""
        if self.broken:
            return
        try:
            log(*args, **kwargs)
        except Exception as error:
            self.broken = True
            warnings.warn(f"{self.service} no longer accepts records ({error}); metrics.csv continues", stacklevel=3)
