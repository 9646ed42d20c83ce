"""chain.jsonl: at each save of a run a line with digests of what was saved, each line with the digest of those before.

A line is one of
- a start: the run's id, digests of config, data and code, and the machine, where they differ from the start before;
- a state, after a step: `tensors` from the checksums that torch stored with them, `file` of everything in it, `metrics`
  of the rows logged before;
- a best model, by the step of its weights;
- the end: score and metrics of the test.

The chain shows what was edited afterwards. It holds no secret, so a forger who computes all digests anew is found only
by computing the run again: `vitlab verify`.
"""

import json
import math
import threading
import zipfile
from pathlib import Path
from typing import Any

from vitlab.atomic_files import compute_digest, format_json, set_aside, write_whole
from vitlab.errors import CheckpointError

CHAIN = "chain.jsonl"
Line = dict[str, Any]


class Chain:
    """The chain of the run in `folder`, continued after `first_step`: lines of states and starts after it are dropped.
    Lines of best models stay, as best.ckpt does. `record` is what rebuilds the run from a checkpoint. Methods may be
    called from several threads."""

    def __init__(self, folder: Path, record: dict[str, Any], first_step: int):
        self.path = folder / CHAIN
        self.lock = threading.Lock()
        kept = [line for line in self._read() if "end" not in line]
        kept = [line for line in kept if max(line.get("from_step", 0), line.get("step", 0)) <= first_step]
        self.link, content = "", b""
        for facts in kept:
            line = link_line({name: value for name, value in facts.items() if name != "link"}, self.link)
            self.link = line["link"]
            content += format_line(line)
        if content != (self.path.read_bytes() if self.path.exists() else b""):
            write_whole(self.path, content)
        facts = describe_start(record)
        starts = [line for line in kept if "from_step" in line]
        if not starts or any(starts[-1].get(name) != value for name, value in facts.items()):
            self.add(from_step=first_step, **facts)

    def add_state(self, step: int, file: Path, state: dict[str, Any]) -> None:
        """Add a state after a step, whose file has been written under a temporary name."""
        rows = state.get("callbacks", {}).get("MetricsCSV")
        tensors, whole = digest_file(file)
        self.add(step=step, tensors=tensors, file=whole, metrics=digest_values(rows))

    def add_best(self, step: int, file: Path) -> None:
        """Add the best model so far, with the weights after a step."""
        tensors, whole = digest_file(file)
        self.add(best=step, tensors=tensors, file=whole)

    def add_end(self, step: int, score: float | None, test: dict[str, float]) -> None:
        """Add what the run ended with."""
        self.add(
            end=step, score=score, test={name: value if math.isfinite(value) else None for name, value in test.items()}
        )

    def add(self, **facts: Any) -> None:
        """Append a line with the digest of those before."""
        with self.lock:
            line = link_line(facts, self.link)
            with open(self.path, "ab") as file:
                file.write(format_line(line))
            self.link = line["link"]

    def _read(self) -> list[Line]:
        """Read the lines that are there; set a damaged file aside."""
        try:
            return read_chain(self.path) if self.path.exists() else []
        except CheckpointError as error:
            print(f"{error}; it is kept as {set_aside(self.path).name}, and a new chain begins", flush=True)
            return []


def read_chain(path: Path) -> list[Line]:
    """Read a chain; a last line that a kill has cut is left out. Raises CheckpointError for one that is missing, or
    whose lines do not follow from each other."""
    try:
        content = path.read_bytes()
        lines = [json.loads(line) for line in content[: content.rfind(b"\n") + 1].splitlines()]
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise CheckpointError(f"{path} is damaged: a line is not JSON") from error
    link = ""
    for number, line in enumerate(lines, 1):
        own = line.get("link") if isinstance(line, dict) else None
        if own is None or link_line({name: line[name] for name in line if name != "link"}, link)["link"] != own:
            raise CheckpointError(f"{path} is damaged: line {number} was changed, or a line before it is missing")
        link = own
    return lines


def link_line(facts: Line, before: str) -> Line:
    return {**facts, "link": digest_values([before, facts])}


def format_line(line: Line) -> bytes:
    return (json.dumps(line, ensure_ascii=False) + "\n").encode("utf-8", "backslashreplace")


def describe_start(record: dict[str, Any]) -> Line:
    """Return the facts of a run's record that its results follow from."""
    identity, digests = record.get("identity") or {}, record.get("digests") or {}
    return {
        "run": identity.get("id"),
        "config": digests.get("config"),
        "data": digest_values(record.get("fingerprint")),
        "code": digests.get("code"),
        "machine": record.get("machine"),
    }


def digest_values(values: Any) -> str:
    """Return a digest of plain values."""
    return compute_digest(format_json(values))


def digest_file(path: Path) -> tuple[str, str]:
    """Return a digest of the tensors in a checkpoint, and one of everything, from the checksum of each record of
    torch's zip file: the tensors themselves are not read."""
    with zipfile.ZipFile(path) as archive:
        records = [(record.filename.partition("/")[2], record.CRC, record.file_size) for record in archive.infolist()]
    tensors = sorted(record for record in records if record[0].startswith("data/"))
    content = sorted(record for record in records if record[0].startswith(("data/", "data.pkl")))
    return digest_values(tensors), digest_values(content)
