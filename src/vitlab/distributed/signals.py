"""Signals while Lightning runs something else than a fit, which has a callback for them."""

from types import FrameType
from typing import Any

from pytorch_lightning.trainer.connectors.signal_connector import _SignalConnector
from pytorch_lightning.utilities.exceptions import SIGTERMException


class Signals(_SignalConnector):
    """Lightning's, whose handler of SIGTERM waits in itself for the other ranks to be in theirs: a rank that is in
    another collective operation never gets there, and all of them hang. This one passes the signal on to the processes
    that the launcher has started, and leaves at once."""

    def _sigterm_notifier_fn(self, signum: int, frame: FrameType | None) -> Any:
        launcher: Any = self.trainer.strategy.launcher
        if launcher is not None:
            launcher.kill(signum)
        raise SIGTERMException
