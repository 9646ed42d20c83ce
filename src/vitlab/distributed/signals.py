"""Handle signals while Lightning runs something other than a fit, for which there is a callback."""

from types import FrameType
from typing import Any

from pytorch_lightning.trainer.connectors.signal_connector import _SignalConnector
from pytorch_lightning.utilities.exceptions import SIGTERMException


class Signals(_SignalConnector):
    """Lightning's handlers, but for SIGTERM. There Lightning waits inside the handler until the other ranks are in
    theirs; a rank within another collective operation never gets there, and all of them hang. This one passes the
    signal on to the processes that the launcher has started, and leaves at once."""

    def _sigterm_notifier_fn(self, signum: int, frame: FrameType | None) -> Any:
        launcher: Any = self.trainer.strategy.launcher
        if launcher is not None:
            launcher.kill(signum)
        raise SIGTERMException
