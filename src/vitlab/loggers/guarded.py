"""Guard training against services that break off."""

import warnings
from collections.abc import Callable
from typing import Any


class Guarded:
    """A service that dies takes its records with it, not the training run: one warning, and it is asked no more."""

    service: str  # as it is called
    broken = False

    def guarded(self, log: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        if self.broken:
            return
        try:
            log(*args, **kwargs)
        except Exception as error:
            self.broken = True
            warnings.warn(f"{self.service} stopped taking records ({error}); metrics.csv goes on", stacklevel=3)
