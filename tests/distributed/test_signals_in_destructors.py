"""A signal that comes while a destructor runs, whose errors Python ignores, still ends the run."""

import os
import signal
import time
from types import SimpleNamespace

import pytest
from pytorch_lightning.utilities.exceptions import SIGTERMException

from vitlab.distributed.signals import Signals


class Waiting:
    """Like a loader that waits for its workers to end."""

    def __init__(self, number):
        self.number = number

    def __del__(self):
        os.kill(os.getpid(), self.number)
        time.sleep(0.01)


@pytest.mark.parametrize(("number", "error"), [(signal.SIGTERM, SIGTERMException), (signal.SIGINT, KeyboardInterrupt)])
@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
def test_it_is_raised_where_it_counts(number, error, capfd):
    told = []
    strategy = SimpleNamespace(launcher=SimpleNamespace(kill=told.append))
    connector = SimpleNamespace(cluster_environment=None)
    before = {one: signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    handlers = Signals(SimpleNamespace(strategy=strategy, _accelerator_connector=connector))
    try:
        handlers.register_signal_handlers()
        Waiting(number)  # is destroyed at once
        with pytest.raises(error):
            time.sleep(5)
    finally:
        handlers.teardown()
        for one, handler in before.items():
            signal.signal(one, handler)
    assert told == [number] * (number == signal.SIGTERM)  # passed on once
    assert "Traceback" not in capfd.readouterr().err
