"""Fetch files of the Hugging Face hub, from its cache or over the network, and upload folders to it."""

import re
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from vitlab.errors import CheckpointError, ConfigError, StorageError

WAIT = 2  # seconds, for a first answer of a server


def fetch(repository: str, names: tuple[str, ...], revision: str | None = None) -> Path:
    """Fetch the first of the files that the repository has. Raises CheckpointError when it cannot be had."""
    for name in names:  # all of them in the cache, before the network is asked for one
        path = find_cached(repository, name, revision)
        if path is not None:
            return path
    for name in names:
        path = download(repository, name, revision)
        if path is not None:
            return path
    raise CheckpointError(f"{repository} on the Hugging Face hub has no {' or '.join(names)}")


def import_library() -> Any:
    """Import huggingface_hub. Raises CheckpointError where it is not installed."""
    try:
        import huggingface_hub
    except ImportError as error:
        raise CheckpointError("names on the hub need huggingface_hub: pip install huggingface_hub") from error
    return huggingface_hub


def find_cached(repository: str, name: str, revision: str | None) -> Path | None:
    """Find a file in the cache; None where it is not there."""
    try:
        path = import_library().try_to_load_from_cache(repository, name, revision=revision)
    except ValueError as error:
        raise CheckpointError(f"{repository} is not a name on the Hugging Face hub; give hf:ORG/NAME") from error
    return Path(path) if isinstance(path, str) else None


def download(repository: str, name: str, revision: str | None) -> Path | None:
    """Fetch a file; None where the repository has none of that name."""
    library = import_library()
    from huggingface_hub import constants
    from huggingface_hub.errors import EntryNotFoundError

    try:
        known = library.try_to_load_from_cache(repository, name, revision=revision)
        if known is not None and not isinstance(known, str):  # known not to exist
            return None
        if not constants.HF_HUB_OFFLINE:  # online, the library tries several times
            reach(constants.ENDPOINT, f"{name} of {repository}")
        return Path(library.hf_hub_download(repository, name, revision=revision))
    except EntryNotFoundError as error:
        if type(error).__name__ != "LocalEntryNotFoundError":
            return None
        why = "HF_HUB_OFFLINE is set" if constants.HF_HUB_OFFLINE else "the hub cannot be reached"
        raise CheckpointError(make_absent_error(f"{name} of {repository}", why)) from error
    except CheckpointError:
        raise
    except Exception as error:  # no such repository, no permission, a connection that breaks
        reason = str(error).strip().split("\n")[0]
        raise CheckpointError(f"cannot get {name} of {repository} from the Hugging Face hub: {reason}") from error


def check_upload(repository: str) -> None:
    """Raise ConfigError unless the name is ORG/NAME and this machine has a token of the hub."""
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", repository):
        raise ConfigError(f"push={repository} is no name on the hub; give ORG/NAME")
    try:
        token = import_library().get_token()
    except CheckpointError as error:
        raise ConfigError("push= needs huggingface_hub: pip install huggingface_hub") from error
    if token is None:
        raise ConfigError("push= needs a token of the hub; type hf auth login, or set HF_TOKEN")


def upload(folder: Path, repository: str) -> str:
    """Upload a folder as a model of the hub, and return its address. Raises StorageError."""
    library = import_library()
    try:
        library.create_repo(repository, exist_ok=True)
        library.upload_folder(repo_id=repository, folder_path=folder)
    except Exception as error:  # no permission, a connection that breaks
        reason = str(error).strip().split("\n")[0]
        raise StorageError(f"{folder} is written, but not uploaded to {repository}: {reason}") from error
    return f"{library.constants.ENDPOINT}/{repository}"


def reach(url: str, what: str) -> None:
    """Raise CheckpointError unless the server answers, whatever it answers."""
    try:
        urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=WAIT).close()
    except urllib.error.HTTPError:
        return
    except OSError as error:
        raise CheckpointError(make_absent_error(what, f"{url} does not answer")) from error


def make_absent_error(what: str, why: str) -> str:
    return (
        f"{what} is not in the cache of this machine, and {why}; download it on a machine with a network, and set "
        "model.pretrained=<the file or its folder>"
    )
