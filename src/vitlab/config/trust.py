"""Trust code of the user: import the packages in trust=, and refuse saved configs that need others.

A checkpoint may be a stranger's, and so are the targets in its config: only the user says what is trusted.
"""

import importlib
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from vitlab.config.build import OURS, TRUSTED, find_nodes, is_trusted, is_within, project_targets
from vitlab.config.home import OF_THE_USER
from vitlab.errors import ConfigError, format_error


@contextmanager
def trusting(packages: str | Sequence[str]) -> Iterator[None]:
    """Import packages, so that the parts they register are known, and let configs build what is in them while this
    lasts. The current folder is searched last. Raises ConfigError for a package that cannot be imported."""
    names = [packages] if isinstance(packages, str) else list(packages)
    if (names or OF_THE_USER) and os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    for name in names:
        if not all(part.isidentifier() for part in name.split(".")) or name.split(".")[0] in sys.stdlib_module_names:
            raise ConfigError(
                f"trust={name} is not the name of your package; give the name that you import: trust=[mylab]"
            )
        try:
            importlib.import_module(name)
        except Exception as error:  # whatever the user's code raises
            hint = "; run the command in the folder of the package, or install it" if is_missing(name, error) else ""
            raise ConfigError(f"trust={name}: the import fails with {format_error(error)}{hint}") from error
    before = list(TRUSTED)
    TRUSTED.extend(names)
    try:
        yield
    finally:
        TRUSTED[:] = before


def is_missing(name: str, error: Exception) -> bool:
    return isinstance(error, ModuleNotFoundError) and error.name is not None and name.startswith(error.name)


def list_packages(config: dict[str, Any]) -> list[str]:
    """List the packages that a config of plain types needs beside this project: those it trusts, and those of its
    targets."""
    stated = config.get("trust") or []
    names = {str(name) for name in (stated if isinstance(stated, list) else [stated])}
    foreign = find_targets(config) - project_targets()
    return sorted(names | {target.partition(".")[0] for target in foreign if not is_within(target, names)})


def check_trust(config: dict[str, Any], origin: str) -> None:
    """Raise ConfigError for a saved config that needs code which the user has not trusted."""
    stated = set(list_packages({"trust": config.get("trust")}))
    targets = find_targets(config)
    if of_python := sorted({target for target in targets if target.partition(".")[0] in sys.stdlib_module_names}):
        raise ConfigError(f"the config in {origin} names {of_python[0]}, which no run needs: do not trust that file")
    if stated - set(TRUSTED) or not all(map(is_trusted, targets)):
        packages = ",".join(list_packages(config))
        raise ConfigError(
            f"{origin} needs code of {packages}, which is not part of vitlab; if you trust it, add trust=[{packages}]"
        )


def trust_words(packages: str | Sequence[str]) -> list[str]:
    """Write what the running command trusts as words of another command."""
    names = [packages] if isinstance(packages, str) else list(packages)
    words = [f"--config-dir={folder}" for folder in OF_THE_USER]
    return [*words, f"trust=[{','.join(names)}]"] if names else words


def find_targets(config: dict[str, Any]) -> set[str]:
    """Collect the `_target_`s of a config of plain types, but for those of this project's modules."""
    found = {node["_target_"] for _, node in find_nodes(config, "config") if isinstance(node["_target_"], str)}
    return {target for target in found if not is_within(target, [OURS])}
