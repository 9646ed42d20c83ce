"""Note the signals that ask a sweep to end, until it next checks its jobs."""

import signal
from types import FrameType, TracebackType
from typing import Any, Self

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


class Stop:
    """A context that notes the first such signal in `number`; a second signal has its usual effect."""

    def __init__(self) -> None:
        self.number: int | None = None
        self.before: dict[int, Any] = {}

    @property
    def requested(self) -> bool:
        return self.number is not None

    def __enter__(self) -> Self:
        for number in STOPPING:
            if signal.getsignal(number) != signal.SIG_IGN:
                self.before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.number = number
        signal.signal(number, self.before[number])
        print(f"\n{signal.Signals(number).name}: jobs are saving their state and ending", flush=True)
