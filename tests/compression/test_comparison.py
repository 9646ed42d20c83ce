"""Which way is chosen, and how ways are scored and timed."""

import time

import pytest
import torch

from vitlab.compression.candidates import BASELINE, Candidate, Form, Skipped
from vitlab.compression.comparison import Comparison, Score, score_candidates
from vitlab.compression.latency import Latency, count_turns, measure_latency


def candidate(name, run=None, file=True):
    return Candidate(name, run, 1000, Form(torch.nn.Identity()) if file else None)


@pytest.fixture
def compared():
    """Three files, of which the faster lose more, beside eager float32 and a compiled model."""
    measured = {BASELINE: (98, 10), "compiled": (98, 1), "float32": (98, 5), "int8": (97.6, 3), "merged": (90, 2)}
    candidates = [candidate(name, file=name not in (BASELINE, "compiled")) for name in measured]
    scores = {name: Score(1000, round(10 * accuracy), 960) for name, (accuracy, _) in measured.items()}
    latency = {name: Latency(p50, 2 * p50) for name, (_, p50) in measured.items()}
    return Comparison(candidates, scores, {1: latency}, [Skipped("OpenVINO bfloat16", "openvino is not installed")])


@pytest.mark.parametrize(("max_drop", "name"), [(0, "float32"), (0.3, "float32"), (0.4, "int8"), (50, "merged")])
def test_the_fastest_file_within_the_limit_is_chosen(compared, max_drop, name):
    assert compared.choose(max_drop).name == name


def test_a_file_that_no_bundle_may_hold_is_not_chosen(compared):
    compared.scores["int8"].equal = 945  # 5.5 % of first classes are others
    assert compared.choose(0.5).name == "int8"
    compared.scores["int8"].equal = 944
    assert compared.choose(0.5).name == "float32"


def test_the_most_accurate_file_is_chosen_where_all_lose_more(compared):
    for name in ("float32", "int8", "merged"):
        compared.scores[name].right -= 100
    assert compared.choose(0.5).name == "float32"


def test_the_table_has_a_row_for_each_way_and_reasons_for_the_others(compared):
    rows = compared.list_rows()
    assert rows[3] | {} == {
        "model": "int8",
        "size MB": 0.0,
        "acc1 %": "97.60",
        "lost": "0.40",
        "same class %": "96.00",
        "p50 ms, B=1": "3.00",
        "p95 ms, B=1": "6.00",
        "speed-up, B=1": "3.33",
    }
    assert rows[-1] == {"model": "OpenVINO bfloat16", "skipped": "openvino is not installed"}
    assert compared.draw(0.5, compared.candidates[3]).axes


def test_all_ways_are_scored_on_the_same_pixels_in_full_batches():
    sizes = []

    def negate(pixels):
        sizes.append(len(pixels))
        return -pixels[:, 0, 0]

    ways = [candidate(BASELINE, lambda pixels: pixels[:, 0, 0]), candidate("other", negate)]
    images, target = torch.randn(7, 1, 1, 3), torch.tensor([0, 1, 2, 0, 1, 2, 0])
    scores = score_candidates(ways, [(images[:4], target[:4]), (images[4:], target[4:])], 4)
    assert sizes == [4, 4]
    assert scores[BASELINE].right == int((images[:, 0, 0].argmax(dim=1) == target).sum())
    assert (scores[BASELINE].images, scores[BASELINE].agreement, scores["other"].agreement) == (7, 100, 0)


def test_ways_are_timed_in_turns_and_a_disturbance_meets_all():
    order = []
    runs = {name: lambda pixels, name=name: order.append(name) for name in "ab"}
    *_, measured = measure_latency(runs, torch.zeros(25, 1, 1, 1), 1)
    assert "".join(order) == "a" * 11 + "b" * 11 + "a" * 11 + "b" * 11 + "a" * 6 + "b" * 6
    assert count_turns(25, 1) == 3
    assert set(measured) == {"a", "b"}


def test_a_latency_is_in_milliseconds_and_few_images_are_repeated():
    seen = []

    def wait(pixels):
        seen.append(tuple(pixels.shape))
        time.sleep(0.02)

    (measured,) = measure_latency({"it": wait}, torch.zeros(3, 1, 1, 1), 8)
    assert seen == [(8, 1, 1, 1)] * 2
    assert 20 <= measured["it"].p50 <= measured["it"].p95 < 2000
