"""Compare ways to run a classifier: accuracy, agreement with float32, latency and size; choose one, and draw all.

B batch, K classes
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor

from vitlab.bundles.proof import INT8
from vitlab.compression.candidates import BASELINE, Candidate, Skipped
from vitlab.compression.latency import Latency

MEGABYTE = 1_000_000


@dataclass
class Score:
    """How many images were classified, rightly, and as the baseline does."""

    images: int = 0
    right: int = 0
    equal: int = 0

    @property
    def accuracy(self) -> float:
        """In percent."""
        return 100 * self.right / self.images

    @property
    def agreement(self) -> float:
        """In percent."""
        return 100 * self.equal / self.images


@dataclass(frozen=True)
class Comparison:
    """What was measured of each candidate: its score, and its latency by batch size."""

    candidates: Sequence[Candidate]
    scores: Mapping[str, Score]
    latencies: Mapping[int, Mapping[str, Latency]]
    skipped: Sequence[Skipped] = field(default=())

    def count_lost(self, name: str) -> float:
        """Percentage points of accuracy that a candidate loses beside the baseline."""
        return self.scores[BASELINE].accuracy - self.scores[name].accuracy

    def choose(self, max_drop: float) -> Candidate:
        """Choose the file that is fastest at the first batch size among those that lose at most `max_drop` points, and
        whose first classes differ as seldom as a bundle's may; the most accurate one if none does."""
        files = [one for one in self.candidates if one.form is not None]
        least = 100 * (1 - limit_flips(max_drop))
        good = [
            one
            for one in files
            if self.count_lost(one.name) <= max_drop + 1e-9 and self.scores[one.name].agreement >= least - 1e-9
        ]
        if not good:
            return min(files, key=lambda one: self.count_lost(one.name))
        first = next(iter(self.latencies.values()))
        return min(good, key=lambda one: first[one.name].p50)

    def list_rows(self) -> list[dict[str, Any]]:
        """Describe each candidate, and last those that were skipped, with the reason."""
        rows = []
        for one in self.candidates:
            score = self.scores[one.name]
            row: dict[str, Any] = {"model": one.name, "size MB": round(one.size / MEGABYTE, 2)}
            row |= {"acc1 %": f"{score.accuracy:.2f}", "lost": f"{self.count_lost(one.name):.2f}"}
            row["same class %"] = f"{score.agreement:.2f}"
            for size, latency in self.latencies.items():
                row[f"p50 ms, B={size}"] = f"{latency[one.name].p50:.2f}"
                row[f"p95 ms, B={size}"] = f"{latency[one.name].p95:.2f}"
                row[f"speed-up, B={size}"] = f"{latency[BASELINE].p50 / latency[one.name].p50:.2f}"
            rows.append(row)
        return rows + [{"model": one.name, "skipped": one.reason} for one in self.skipped]

    def draw(self, max_drop: float, chosen: Candidate) -> Figure:
        """Draw accuracy over latency at the first batch size, as large as the weights."""
        size, latency = next(iter(self.latencies.items()))
        figure = Figure(figsize=(8, 4.8), layout="constrained")
        axes = figure.subplots()
        largest = max(one.size for one in self.candidates)
        for one in self.candidates:
            x, y = latency[one.name].p50, self.scores[one.name].accuracy
            colour = "tab:orange" if one is chosen else "tab:blue" if one.form is not None else "tab:gray"
            axes.scatter(x, y, s=30 + 400 * one.size / largest, color=colour, alpha=0.5, label=None)
            axes.annotate(one.name, (x, y), xytext=(4, 4), textcoords="offset points", fontsize=7, rotation=20)
        limit = self.scores[BASELINE].accuracy - max_drop
        axes.axhline(limit, color="tab:red", linestyle=":", label=f"max_drop={max_drop:g}")
        axes.scatter([], [], color="tab:orange", alpha=0.5, label=f"chosen: {chosen.name}")
        axes.set(xscale="log", xlabel=f"median ms for a batch of {size}", ylabel="test accuracy, %")
        axes.set_title("area: size of the weights; blue: ONNX files", fontsize=9)
        axes.margins(x=0.15, y=0.15)
        axes.grid(alpha=0.3)
        axes.legend(frameon=False, fontsize=8)
        return figure


def limit_flips(max_drop: float) -> float:
    """Return the share of images whose first class a file may change if it may lose `max_drop` points."""
    return min(1.0, INT8.flips + max_drop / 100)


def score_candidates(
    candidates: Sequence[Candidate], batches: Iterable[tuple[Tensor, Tensor]], size: int
) -> dict[str, Score]:
    """Classify the same pixels with each candidate. `batches` are images (B, C, H, W) and classes (B,), of which the
    last may have fewer than `size`."""
    scores = {one.name: Score() for one in candidates}
    with torch.inference_mode():
        for pixels, target in batches:
            missing = size - len(pixels)  # a compiled model takes batches of one size
            full = torch.cat([pixels, pixels[:1].expand(missing, -1, -1, -1)]) if missing else pixels
            said = {one.name: one.run(full)[: len(pixels)].argmax(dim=1) for one in candidates}
            for name, classes in said.items():
                scores[name].images += len(target)
                scores[name].right += int((classes == target).sum())
                scores[name].equal += int((classes == said[BASELINE]).sum())
    return scores
