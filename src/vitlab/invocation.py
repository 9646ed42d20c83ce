"""Tell how this process was started, and so how its user calls a command."""

import shlex
import sys
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent


def typed(command: str) -> str:
    """Say how the user calls a command: python src/train.py, python -m vitlab train, or vitlab train."""
    script = Path(sys.argv[0])
    if is_entry(script):
        return f"python {shlex.quote(str(path_from_here(script.with_name(f'{command}.py'))))}"
    if script.resolve() == PACKAGE / "__main__.py":
        return f"python -m vitlab {command}"
    return f"vitlab {command}"


def path_from_here(path: Path) -> Path:
    """Shorten a path below the working directory to one that is relative to it."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def script_of(command: str) -> list[str]:
    """The file that Python runs to do this command once more, and the words that come before its own."""
    script = Path(sys.argv[0]).absolute()
    return [str(script)] if is_entry(script) else [str(script), command]


def is_entry(script: Path) -> bool:
    """Whether it is one of the entries beside the package, in a checkout."""
    return script.suffix == ".py" and script.resolve().parent == PACKAGE.parent
