"""Counts and times of a server, in the format of Prometheus."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

SECONDS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128)


class Telemetry:
    """The metrics of one server, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "vitlab_requests", "Requests that were answered.", ["path", "status"], registry=self.registry
        )
        self.seconds = Histogram(
            "vitlab_request_seconds", "Time to an answer.", ["path"], buckets=SECONDS, registry=self.registry
        )
        self.images = Counter("vitlab_images", "Images that were scored.", registry=self.registry)
        self.batches = Histogram("vitlab_batch_size", "Images in a batch.", buckets=SIZES, registry=self.registry)
        self.open = Gauge("vitlab_open_requests", "Requests that are being worked on.", registry=self.registry)

    def note_batch(self, size: int) -> None:
        self.images.inc(size)
        self.batches.observe(size)
