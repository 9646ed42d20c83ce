"""What a reader sees of a run while it goes on."""

import re
import sys

import pytest

from vitlab.callbacks.step_log import format_seconds

ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def test_the_bar_fits_into_80_columns(cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(type(sys.stdout), "isatty", lambda stream: True, raising=False)
    run = cli("train", "data.split.labels_per_class=26", "trainer.max_epochs=2", folder="run")
    assert run.status == 0, run.err
    lines = [line for line in re.split(r"[\r\n]+", ESCAPE.sub("", run.out)) if "━" in line and "┏" not in line]
    bars = [line for line in lines if not line.startswith("┡")]
    assert any(re.match(r"Epoch 2/2 .*loss: \d\.\d+ val/acc1: \d+\.\d\d% *$", line) for line in bars), bars
    assert all(len(line) <= 80 for line in bars)
    assert any(re.match(r"Epoch 2/2 .* \d+ s +loss", line) for line in bars), bars  # what is left of the whole run
    lasting = [line for line in ESCAPE.sub("", run.out).splitlines() if re.match(r"epoch \d  step \d+/8  loss", line)]
    assert len(lasting) == 2  # above the bar, and they stay
    assert re.search(r"epoch 1  step 4/8 [^━]* s left", ESCAPE.sub("", run.out))
    words = [line for line in re.split(r"[\r\n]+", ESCAPE.sub("", run.out)) if "val/acc1:" in line]
    assert all(line.startswith("Epoch") for line in words)  # nothing goes on in the next line


def test_elsewhere_each_validation_is_a_line(cli):
    run = cli("train", "data.split.labels_per_class=26", "trainer.max_epochs=2", folder="run")
    lines = [line for line in run.out.splitlines() if line.startswith("epoch ")]
    assert len(lines) == 2
    for line in lines:
        assert re.search(r"loss \d\.\d{4}  lr \S+  images/s \d+  val/loss \d\.\d{4}  val/acc1 \d+\.\d\d%", line), line


def test_of_five_classes_nothing_is_said_of_the_best_five(cli):
    few = ["data=synthetic", "data.num_classes=5", "data.source.num_samples=200", "trainer.max_epochs=1"]
    run = cli("train", *few, "monitor=val/acc5", folder="no")
    assert run.status == 2
    assert "monitor 'val/acc5' is not" in run.err
    run = cli("train", *few, folder="run")
    assert run.status == 0, run.err
    assert "acc5" not in run.out + (run.folder / "metrics.csv").read_text()


def test_without_a_terminal_a_line_comes_before_the_first_validation(cli, monkeypatch):
    monkeypatch.setattr("vitlab.callbacks.step_log.QUIET", 0.0)
    run = cli("train", "data.split.labels_per_class=26", "trainer.max_epochs=1", folder="run")
    lines = [line for line in run.out.splitlines() if line.startswith("step ")]
    assert [line.split("  ")[0] for line in lines][:3] == ["step 1/4", "step 2/4", "step 3/4"]
    assert all(re.search(r"  \d+ s left$", line) for line in lines[:3])


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.4, "0 s"), (89, "89 s"), (90, "2 min"), (3599, "1 h 0 min"), (12_000, "3 h 20 min")]
)
def test_times_are_said_as_people_say_them(seconds, words):
    assert format_seconds(seconds) == words
