"""Compare the request of a saved sweep with a new one under the same name."""

import json
from typing import Any

from vitlab.errors import ConfigError
from vitlab.sweeps.folder import Request, SweepFolder

MAX_DIFFERENCES = 3  # that the error message lists


def check_same(sweep: SweepFolder, request: Request) -> None:
    """Raise ConfigError, with the differences, unless the sweep was saved for the same request."""
    before = sweep.request()
    found = [*compare_values(before.config, request.config), *compare_jobs(before, request)]
    found += compare_values(before.search or {}, request.search or {}, "search")
    if found:
        rest = f", and {len(found) - MAX_DIFFERENCES} more" if len(found) > MAX_DIFFERENCES else ""
        raise ConfigError(
            f"the sweep {sweep.path} was started with other settings: {'; '.join(found[:MAX_DIFFERENCES])}{rest}. Give "
            "another sweep=NAME, or resume it unchanged with -m sweep=NAME alone"
        )


def compare_values(before: Any, now: Any, key: str = "") -> list[str]:
    """List the keys whose values differ between two nodes of plain types, with both values."""
    if isinstance(before, dict) and isinstance(now, dict):
        names = dict.fromkeys([*before, *now])
        values = ((before.get(name), now.get(name), f"{key}.{name}" if key else name) for name in names)
        return [line for one, other, place in values for line in compare_values(one, other, place)]
    return [] if before == now else [f"{key} was {json.dumps(before)} and is {json.dumps(now)} now"]


def compare_jobs(before: Request, now: Request) -> list[str]:
    """Say how many jobs only one of two requests has, each time with an example."""
    one, other = before.jobs or [], now.jobs or []
    lost, new = [job for job in one if job not in other], [job for job in other if job not in one]
    found = [f"it has {format_count(len(lost))} not requested now, such as {' '.join(lost[0])}"] if lost else []
    return found + ([f"it lacks {format_count(len(new))} requested now, such as {' '.join(new[0])}"] if new else [])


def format_count(jobs: int) -> str:
    return "1 job that is" if jobs == 1 else f"{jobs} jobs that are"
