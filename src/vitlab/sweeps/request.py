"""Compare what a sweep was asked to do with a new request under the same name."""

import json
from typing import Any

from vitlab.errors import ConfigError
from vitlab.sweeps.folder import SweepFolder

MOST = 3  # differences that are told


def check_same(sweep: SweepFolder, request: dict[str, Any]) -> None:
    """Raise ConfigError, with the difference, unless the sweep was frozen for the same request."""
    before = sweep.request()
    found = [*other_values(before["config"], request["config"]), *other_jobs(before, request)]
    found += other_values(before.get("search", {}), request.get("search", {}), "search")
    if found:
        rest = f", and {len(found) - MOST} more" if len(found) > MOST else ""
        raise ConfigError(
            f"the sweep {sweep.path} was started with something else: {'; '.join(found[:MOST])}{rest}. Give another "
            "sweep=NAME, or go on with it as it was, by -m sweep=NAME alone"
        )


def other_values(before: Any, now: Any, key: str = "") -> list[str]:
    """Give the keys of two nodes of plain types whose values differ, and both values."""
    if isinstance(before, dict) and isinstance(now, dict):
        names = dict.fromkeys([*before, *now])
        values = ((before.get(name), now.get(name), f"{key}.{name}" if key else name) for name in names)
        return [told for one, other, place in values for told in other_values(one, other, place)]
    return [] if before == now else [f"{key} was {json.dumps(before)} and is {json.dumps(now)} now"]


def other_jobs(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """List the jobs that one request has and the other has not, by what varies among them."""
    one, other = (request.get("jobs", []) for request in (before, now))
    lost, new = [job for job in one if job not in other], [job for job in other if job not in one]
    found = [f"it has {counted(len(lost))} not asked for now, as {' '.join(lost[0])}"] if lost else []
    return found + ([f"it lacks {counted(len(new))} asked for now, as {' '.join(new[0])}"] if new else [])


def counted(jobs: int) -> str:
    return "1 job that is" if jobs == 1 else f"{jobs} jobs that are"
