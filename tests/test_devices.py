"""What is for one kind of device leaves the others alone."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch

from vitlab.data.batches.batch import RawBatch
from vitlab.data.loading import loader
from vitlab.run.hardware.precision import restore_float32_products, speed_up_float32_products


@pytest.mark.parametrize("kind", ["cuda", "mps"])
def test_float32_products_are_sped_up_for_a_cpu_alone(kind):
    restore_float32_products()
    before = torch.backends.mkldnn.matmul.fp32_precision
    assert not speed_up_float32_products(torch.device(kind))
    assert torch.backends.mkldnn.matmul.fp32_precision == before
    speed_up_float32_products(torch.device("cpu"))
    restore_float32_products()


def test_every_iteration_copies_on_the_same_stream_of_a_device(monkeypatch):
    """Each loader of a run, epoch after epoch; tests/test_gpu_loader.py measures the memory that this keeps flat."""
    streams = []

    class Stream(SimpleNamespace):
        def __init__(self, device):
            super().__init__(device=device, record_event=lambda: None, wait_event=lambda event: None)
            streams.append(self)

    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: SimpleNamespace(wait_event=lambda event: None))
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda tensor, stream: None)
    monkeypatch.setattr(loader, "on_device", lambda batch, device: batch)
    loader.copy_stream.cache_clear()
    batches = [RawBatch((torch.tensor([k]),), torch.tensor([k]), torch.tensor([k])) for k in range(3)]
    first, second = torch.device("cuda", 0), torch.device("cuda", 1)
    for device in (first, first, second, first):
        assert [batch.view.item() for batch in loader.copy_ahead(batches, device)] == [0, 1, 2]
    assert [stream.device for stream in streams] == [first, second]
    loader.copy_stream.cache_clear()
