"""A signal that comes where Python ignores errors still ends the run."""

import os
import signal
import time
from types import SimpleNamespace

import pytest
from pytorch_lightning.utilities.exceptions import SIGTERMException

from vitlab.distributed.signals import Signals
from vitlab.interruption import heed_ignored


class Waiting:
    """Like a loader that waits for its workers to end."""

    def __init__(self, send):
        self.send = send

    def __del__(self):
        self.send()


def fork(send):
    """With what logging, and much else, does before."""
    BEFORE_FORK.append(send)
    if not os.fork():
        os._exit(0)


BEFORE_FORK = []
os.register_at_fork(before=lambda: BEFORE_FORK and BEFORE_FORK.pop()())


@pytest.mark.parametrize("place", [Waiting, fork])
@pytest.mark.parametrize(("number", "error"), [(signal.SIGTERM, SIGTERMException), (signal.SIGINT, KeyboardInterrupt)])
@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
def test_it_is_raised_where_it_counts(number, error, place, capfd):
    told = []

    def send():
        os.kill(os.getpid(), number)
        time.sleep(0.01)

    strategy = SimpleNamespace(launcher=SimpleNamespace(kill=told.append))
    connector = SimpleNamespace(cluster_environment=None)
    before = {one: signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    handlers = Signals(SimpleNamespace(strategy=strategy, _accelerator_connector=connector))
    try:
        handlers.register_signal_handlers()
        with heed_ignored():
            place(send)
            with pytest.raises(error):
                time.sleep(5)
    finally:
        handlers.teardown()
        for one, handler in before.items():
            signal.signal(one, handler)
    assert told == [number] * (number == signal.SIGTERM)  # passed on once
    assert "Traceback" not in capfd.readouterr().err
