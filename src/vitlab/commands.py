"""List the commands: each is a program of the same name, called as `vitlab NAME`, or `python src/NAME.py`."""

import functools
import importlib
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

from vitlab import __version__
from vitlab.interruption import end_at_once, raise_again


class Command(NamedTuple):
    """What it does, the function of its program, and the key that a first word without one is the value of."""

    about: str
    function: str
    first: str | None = None


COMMANDS = {
    "train": Command("train a model, go on with a run (resume=), or run a sweep (-m)", "train"),
    "fit": Command("make a classifier of a folder of images in some minutes", "fit", "data.source.root"),
    "check": Command("tell what a training would cost, and what would be refused", "check"),
    "tune": Command("find a learning rate or a batch size before a training", "tune"),
    "evaluate": Command("score a finished run on one of its splits", "evaluate"),
    "predict": Command("tell the classes of new images", "predict"),
    "visualize": Command("draw where a model looks, and what it has learned", "visualize"),
    "explain": Command("write one page that shows each step of a model on an image", "explain"),
    "probe": Command("tell how much of the classes can be read from frozen features", "probe"),
    "features": Command("write the features of images to a file", "extract_features"),
    "export": Command("take a run to timm or Hugging Face", "export"),
    "serve": Command("serve a bundle over HTTP, with a page to try it", "serve", "bundle"),
    "compress": Command("make a run smaller and faster: int8 weights, merged tokens", "compress"),
    "survey": Command("read a whole data set, and tell what is in it and what is wrong", "survey"),
    "preview": Command("draw a training batch as the model will see it", "preview"),
    "pack": Command("pack a data set into a few large files", "pack"),
    "summary": Command("count parameters, operations and memory of a model, before it runs", "summarize"),
    "compare": Command("tell which of several recipes is better, and how sure that is", "compare"),
    "report": Command("write a page that shows what finished runs have found, to send", "report"),
    "verify": Command("compute parts of a run again, and tell whether it is what it says", "verify", "run"),
    "replay": Command("name the layer in which a run that diverged did so first", "replay", "run"),
    "runs": Command("find, compare, archive and remove runs", "runs", "root"),
    "new": Command("write a folder for code of your own: a loss, its config, its test", "new", "output"),
    "sweeps": Command("tell what the jobs of a sweep are at", "tell", "sweep"),
}


def command(name: str, after: int = 1) -> Callable[[], None]:
    """The command of that name, whose own words come `after` so many of the command line."""
    return functools.partial(start, name, after)


def start(name: str, after: int) -> None:
    """Run a command with the words of the command line that come `after` so many."""
    end_at_once()
    from vitlab.config.command import run_command

    run_command(name, functools.partial(program, name), after, COMMANDS[name].first)


def program(name: str, cfg: Any) -> Any:
    """Run the program of a command on its config. What is heavy loads here, after a typo has been refused."""
    module = importlib.import_module(f"vitlab.programs.{name}")
    raise_again()
    return getattr(module, COMMANDS[name].function)(cfg)


def main() -> None:
    """Run `vitlab NAME …`, or list the commands."""
    end_at_once()
    from vitlab.config.command import leave
    from vitlab.config.completion import SCRIPT, candidates
    from vitlab.errors import ConfigError
    from vitlab.spelling import suggest_name

    name = sys.argv[1] if len(sys.argv) > 1 else "--help"
    if name in COMMANDS:
        start(name, after=2)
    elif name == "completion":
        print(*candidates(sys.argv[2], COMMANDS) if len(sys.argv) > 2 else [SCRIPT], sep="\n")
    elif name in ("-h", "--help", "help"):
        print(help_text())
    elif name == "--version":
        print(f"vitlab {__version__}")
    else:
        leave(ConfigError(f"there is no command {name}{suggest_name(name, COMMANDS)}"))


def help_text() -> str:
    """List all commands, one per line."""
    from vitlab.invocation import format_command

    return "\n".join(
        [
            "Train, study and ship Vision Transformers.\n",
            f"  {format_command('NAME')} [group=option ...] [key=value ...]\n",
            *(f"  {name:<11}{one.about}" for name, one in COMMANDS.items()),
            f"\n{format_command('NAME')} --help tells what a command takes. In bash, after",
            '  eval "$(vitlab completion)"',
            "the Tab key completes commands, groups, options and keys.",
        ]
    )
