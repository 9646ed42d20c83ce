"""Read where finished runs come from: software, machine, commands and cost; and what differs between two of them."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vitlab.monitors import format_metric
from vitlab.reports.comparison import Pair, Recipe
from vitlab.reports.finished import FinishedRun
from vitlab.reports.page.samples import Sample
from vitlab.reports.run import read_result

NOT_STATED = "not stated"


def read_starts(folder: Path) -> list[dict[str, Any]]:
    """Read every start of a run from provenance.json; none where the file is missing or damaged."""
    try:
        starts = json.loads((folder / "provenance.json").read_bytes())
    except (OSError, ValueError):
        return []
    return [one for one in starts if isinstance(one, dict)] if isinstance(starts, list) else []


def describe_software(start: dict[str, Any]) -> dict[str, str]:
    """Describe the code and the machine of a start, by name: commit, versions, device, digests of the user's code."""
    git, own = start.get("git") or {}, start.get("own_code") or {}
    commit = git.get("commit", NOT_STATED) + (" with changes" if git.get("modified") else "")
    versions = {str(name): str(version) for name, version in (start.get("versions") or {}).items()}
    code = {f"code of {name}": str(digest) for name, digest in own.items()}
    return {"commit": commit, **code, **versions, "device": str(start.get("device", NOT_STATED))}


def describe_origins(runs: Sequence[FinishedRun]) -> list[dict[str, str]]:
    """Make a row for each run: its start, commit, versions and machine. What is the same in all runs stands in each."""
    rows = []
    for run in runs:
        starts = read_starts(run.folder)
        software = describe_software(starts[-1] if starts else {})
        started = str(starts[0].get("time", NOT_STATED)) if starts else NOT_STATED
        row: dict[str, str] = {"run": str(run.folder), "started": started}
        if len(starts) > 1:
            row["started"] += f", {len(starts)} starts"
        named: dict[str, str] = {
            name: software[name] for name in ("commit", "vitlab", "torch", "python") if name in software
        }
        named["commit"] = shorten_commit(named["commit"])
        rows.append({**row, **named, "machine": software["device"]})
    return rows


def list_commands(runs: Sequence[FinishedRun]) -> list[tuple[str, list[str]]]:
    """List the command of every start of each run, exactly as it was typed, without secrets."""
    return [(str(run.folder), [str(start.get("command")) for start in read_starts(run.folder)]) for run in runs]


def describe_costs(runs: Sequence[FinishedRun]) -> list[dict[str, str]]:
    """Make a row for each run: steps, seconds and speed of its training."""
    rows = []
    for run in runs:
        result = read_result(run.folder) or {}
        speed, seconds, steps = (result.get(key) for key in ("images_per_second", "seconds", "steps"))
        rows.append(
            {
                "run": str(run.folder),
                "training time": NOT_STATED if seconds is None else f"{seconds:,.0f} s",
                "steps": NOT_STATED if steps is None else f"{steps:,}",
                "images/s in training": NOT_STATED if speed is None else f"{speed:,.0f}",
            }
        )
    return rows


# -- two runs of one recipe


def label_by_software(runs: Sequence[FinishedRun]) -> dict[Path, str]:
    """Label each run by what differs in its software: its commit, else versions or machine. {} where nothing does."""
    starts = {run.folder: read_starts(run.folder) for run in runs}
    told = {folder: describe_software(own[-1] if own else {}) for folder, own in starts.items()}
    keys = dict.fromkeys(key for one in told.values() for key in one)
    differing = [key for key in keys if len({one.get(key) for one in told.values()}) > 1]
    if not differing:
        return {}
    if "commit" in differing:
        return {folder: f"commit {shorten_commit(one['commit'])}" for folder, one in told.items()}
    return {folder: ", ".join(f"{key} {one.get(key, 'missing')}" for key in differing) for folder, one in told.items()}


def shorten_commit(commit: str) -> str:
    """Shorten a commit to ten digits; what follows stays."""
    digits, _, rest = commit.partition(" ")
    return f"{digits[:10]} {rest}".rstrip() if commit != NOT_STATED else commit


def list_changes(first: Recipe, second: Recipe) -> list[dict[str, str]]:
    """Make a row for all that differs in software, machine, metrics and cost of two recipes' first common seed."""
    seed = min(first.runs.keys() & second.runs.keys(), default=None)
    a, b = (one.runs[min(one.runs) if seed is None else seed] for one in (first, second))
    told = []
    for run in (a, b):
        starts = read_starts(run.folder)
        metrics = {name: format_metric(name, value) for name, value in sorted(run.metrics.items())}
        cost = {name: value for name, value in describe_costs([run])[0].items() if name != "run"}
        told.append({**describe_software(starts[-1] if starts else {}), **metrics, **cost})
    keys = [key for key in dict.fromkeys([*told[0], *told[1]]) if told[0].get(key) != told[1].get(key)]
    return [
        {"": key} | {r.label: one.get(key, "") for r, one in zip((first, second), told, strict=True)} for key in keys
    ]


def judge_regression(pair: Pair, before: Sequence[Sample], after: Sequence[Sample]) -> str:
    """Say in a sentence whether the second recipe, the later one, is worse than the first, as far as is shown."""
    same = [a.metrics for a in pair.first.runs.values()] == [b.metrics for b in pair.second.runs.values()]
    if same and before == after:
        return "No regression: every metric and every prediction is the same to the last digit."
    broken = {one.index for one in before if one.is_right} & {one.index for one in after if not one.is_right}
    mended = {one.index for one in before if not one.is_right} & {one.index for one in after if one.is_right}
    flips = f" {len(broken):,} test samples are wrong now that were right, {len(mended):,} the other way."
    if pair.is_shown and pair.gain < 0:
        return f"A regression: {pair.second.label} is worse than {pair.first.label}.{flips}"
    if pair.is_shown:
        return f"No regression: {pair.second.label} is better than {pair.first.label}.{flips}"
    return f"No regression is shown, but figures differ.{flips}"
