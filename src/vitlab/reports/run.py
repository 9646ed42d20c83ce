"""What a run says of itself once it has ended."""

import json
from pathlib import Path
from typing import Any

RESULT = "result.json"


def result_of(folder: Path) -> dict[str, Any] | None:
    """The result of a run's folder: score, steps, seconds, test metrics; None where the run has not ended well."""
    path = folder / RESULT
    return json.loads(path.read_text()) if path.is_file() else None
