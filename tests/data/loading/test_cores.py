"""A process takes the cores that are its own, however a launcher has shared them out."""

import os
import socket

import pytest

from vitlab.data.loading import cores
from vitlab.data.loading.loader import choose_num_workers

ALL = set(range(112))
SOCKETS = [set(range(56))] * 4 + [set(range(56, 112))] * 4


@pytest.fixture
def bound(monkeypatch, tmp_path):
    """bound(masks): this process is the last of several, which may run on these cores."""

    def build(masks, told=True, host=None):
        masks = [frozenset(mask) for mask in masks]
        monkeypatch.setattr(os, "sched_getaffinity", lambda process: masks[-1], raising=False)
        others = [(host or socket.gethostname(), mask) for mask in masks[:-1]] if told else []
        monkeypatch.setattr(cores, "gather_from_all_ranks", lambda own: [*others, *own])
        monkeypatch.setattr(cores, "OWN_CGROUP", tmp_path / "cgroup")

    return build


@pytest.mark.parametrize(
    ("masks", "expected"),
    [
        ([range(14 * k, 14 * (k + 1)) for k in range(8)], 14),  # each to its own
        ([ALL] * 8, 14),
        (SOCKETS, 14),
        ([ALL], 16),  # the most there are
        ([range(4)] * 8, 1),
        ([range(3)] * 3, 1),
        ([range(30), range(20, 30)], 5),  # ten cores of two
    ],
)
def test_each_core_is_shared_by_those_that_may_run_on_it(bound, masks, expected):
    bound(masks)
    assert choose_num_workers(None, len(masks)) == expected


@pytest.mark.parametrize(("count", "expected"), [(1, 1), (2, 1), (3, 1), (4, 2), (12, 10), (64, 16)])
def test_two_cores_of_a_gpu_are_left_to_its_own_threads(bound, recwarn, count, expected):
    bound([range(count)])
    assert choose_num_workers(None, 1, for_gpu=True) == expected
    assert [f"with {count} CPU core" in str(warning.message) for warning in recwarn] == [True] * (count < 4)


def test_before_the_processes_have_begun_they_are_taken_to_have_the_same_cores(bound):
    bound([range(16)] * 4, told=False)
    assert choose_num_workers(None, 4) == 4


def test_processes_of_other_machines_have_other_cores(bound):
    bound([range(8)] * 4, host="elsewhere")
    assert choose_num_workers(None, 1) == 8


@pytest.mark.parametrize(
    ("group", "limits", "expected"),
    [
        ("0::/\n", {"": "400000 100000"}, 4),  # as a container sees itself
        ("0::/pod/job\n", {"pod/job": "max 100000", "pod": "600000 100000"}, 6),
        ("0::/pod/job\n", {"pod/job": "250000 100000", "pod": "600000 100000"}, 2),
        ("0::/pod\n", {"pod": "max 100000"}, 12),
        ("0::/pod\n", {}, 12),
        ("5:cpu:/old\n", {}, 12),  # version 1
    ],
)
def test_a_quota_of_the_container_is_a_limit(bound, monkeypatch, tmp_path, group, limits, expected):
    bound([range(12)])
    (tmp_path / "cgroup").write_text(group)
    for name, words in limits.items():
        (tmp_path / "groups" / name).mkdir(parents=True, exist_ok=True)
        (tmp_path / "groups" / name / "cpu.max").write_text(words + "\n")
    monkeypatch.setattr(cores, "CGROUPS", tmp_path / "groups")
    assert choose_num_workers(None, 1) == expected


def test_a_quota_is_shared(bound, monkeypatch):
    bound([range(12)] * 2)
    monkeypatch.setattr(cores, "quota", lambda: 6.0)
    assert choose_num_workers(None, 2) == 3
