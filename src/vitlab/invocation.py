"""Find out how this process was started, to print and start commands the same way."""

import shlex
import sys
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent


def format_command(command: str) -> str:
    """Format a command as the user would type it: python src/train.py, python -m vitlab train, or vitlab train."""
    script = Path(sys.argv[0])
    if is_entry(script):
        return f"python {shlex.quote(str(shorten_path(script.with_name(f'{command}.py'))))}"
    if script.resolve() == PACKAGE / "__main__.py":
        return f"python -m vitlab {command}"
    return f"vitlab {command}"


def shorten_path(path: Path) -> Path:
    """Return a path relative to the working directory if it is below it, else unchanged."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def build_command(command: str) -> list[str]:
    """Return the script that runs a command again, followed by the command's name where the script needs it."""
    script = Path(sys.argv[0]).absolute()
    return [str(script)] if is_entry(script) else [str(script), command]


def is_entry(script: Path) -> bool:
    """Whether a script is one of the entries beside the package, in a checkout."""
    return script.suffix == ".py" and script.resolve().parent == PACKAGE.parent
