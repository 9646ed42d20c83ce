"""Keep secrets out of all that is stored or printed of a config: their keys are named, their values left out."""

import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from typing import Any, TextIO
from urllib.parse import unquote

from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from vitlab.config.nodes import convert_unresolved, find_texts, flatten, list_resolvers, resolve_value
from vitlab.errors import ConfigError

MARK = "<not kept>"
WORDS = "key|token|secrets?|passw(?:or)?ds?|passphrase|pwd|credentials?|sig(?:nature)?|auth(?:orization)?|bearer|cookie"
SECRET = re.compile(rf"(?:.*[\W_])?(?:api|access|auth|secret|private)?(?:{WORDS})(?:[\W_].*)?", re.IGNORECASE)
CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")
OVERRIDE = re.compile(r"(?P<name>[+~]*[\w.@/-]+)=(?P<value>.+)", re.DOTALL)
PARTS = re.compile(r"[\s'\",:{}\[\]]+")  # between the parts of an override's value
ADDRESS = re.compile(r"(?<=://)[^\s'\"<>]+")
LOGIN = re.compile(r"[^/?#]*@|[^/@:?#]*:(?!\d*/)[^?#]*@")  # a password may hold a slash, a port not
QUERY = re.compile(r"([?&;#])([^=&;?#]+)=([^&;#]+)")
SHORTEST = 6  # letters of a secret that is looked for within other words
VISIBLE = {"name", "sweep"}  # keys of names of folders


class Redaction:
    """Called with plain values, give them without the secrets of some configs: what stands under a key that names a
    secret, what comes from the environment, and logins and tokens in addresses, wherever they occur."""

    def __init__(self, *configs: DictConfig):
        found = {value for cfg in configs for value in find_secrets(cfg, convert_unresolved(cfg)) if value}
        self.secrets = found | {form for secret in found for form in list_forms(secret)}
        within = sorted((one for one in self.secrets if len(one) >= SHORTEST), key=len, reverse=True)
        self.within = re.compile("|".join(map(re.escape, within))) if within else None

    def __call__(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {self(k): mask_values(v) if is_secret(k) else self(v) for k, v in value.items()}
        if isinstance(value, list | tuple):
            return [self(item) for item in value]
        return self.text(value) if isinstance(value, str) else value

    def text(self, text: str) -> str:
        """Give a text without secrets: a value, an override, or a message."""
        if text in self.secrets:
            return MARK
        override = OVERRIDE.fullmatch(text)
        if override and (is_secret(override["name"]) or self.secrets & set(PARTS.split(override["value"]))):
            return f"{override['name']}={MARK}"
        if self.within:
            text = self.within.sub(MARK, text)
        return ADDRESS.sub(lambda found: remove_login(found[0]), text)

    @contextmanager
    def redact_output(self) -> Iterator[None]:
        """Print nothing of the secrets meanwhile: what a job of a sweep prints is kept in a file."""
        if not self.secrets:
            yield
            return
        with redirect_stdout(RedactedStream(sys.stdout, self)), redirect_stderr(RedactedStream(sys.stderr, self)):
            yield


class RedactedStream:
    """A stream whose texts pass a redaction; in all else the stream itself."""

    def __init__(self, stream: TextIO, redaction: Redaction):
        self.stream, self.redaction = stream, redaction

    def write(self, text: str) -> int:
        self.stream.write(self.redaction.text(text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def mask_values(value: Any) -> Any:
    """Leave out texts and numbers, at any depth."""
    if isinstance(value, dict):
        return {key: mask_values(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [mask_values(inner) for inner in value]
    return value if value is None or isinstance(value, bool) or value == "" else MARK


def remove_login(address: str) -> str:
    """Leave out user and password of an address, and tokens in its query."""
    address = LOGIN.sub(f"{MARK}@", address, count=1) if LOGIN.match(address) else address
    return QUERY.sub(lambda one: f"{one[1]}{one[2]}={MARK}" if is_secret(one[2]) else one[0], address)


def is_secret(key: Any) -> bool:
    """Whether a key's last part names a secret: logger.wandb.api_key."""
    return SECRET.fullmatch(CAMEL.sub("_", str(key).rpartition(".")[2])) is not None


def find_secrets(node: Any, written: Any, secret: bool = False) -> Iterator[str]:
    """Yield what is secret below a node, as texts: values by their key or from the environment, and parts of
    addresses. `written` is the node in plain types, its references as they are written; `secret`: all below it is."""
    for key, raw in written.items() if isinstance(written, dict) else enumerate(written):
        hidden = secret or is_secret(key)
        if isinstance(raw, dict | list):
            yield from find_secrets(node[key], raw, hidden)
        elif hidden or (reads_environment(raw) and key not in VISIBLE):
            with suppress(OmegaConfBaseException):  # it is refused later
                yield from find_value_secrets(resolve_value(node[key]))
        elif isinstance(raw, str):
            yield from find_address_secrets(raw)


def find_value_secrets(value: Any) -> Iterator[str]:
    """Yield texts and numbers of a secret value as texts."""
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from find_value_secrets(inner)
    elif not (value is None or isinstance(value, bool)):
        yield str(value)
        yield from find_address_secrets(str(value))


def find_address_secrets(text: str) -> Iterator[str]:
    """Yield logins, passwords and tokens of the addresses in a text."""
    for address in ADDRESS.findall(text):
        if login := LOGIN.match(address):
            yield login[0][:-1]
            yield login[0][:-1].partition(":")[2]
        yield from (value for _, name, value in QUERY.findall(address) if is_secret(name))


def list_forms(secret: str) -> set[str]:
    """Give a secret as messages may quote it: escaped, or decoded."""
    return {repr(secret)[1:-1], json.dumps(secret)[1:-1], unquote(secret)}


def reads_environment(written: Any) -> bool:
    """Whether a raw value reads the environment, or might: through a resolver whose name is itself a reference."""
    return isinstance(written, str) and any(name == "oc.env" or "${" in name for name in list_resolvers(written))


def check_kept(config: dict[str, Any]) -> None:
    """Raise ConfigError, naming the key, for a saved config whose secret was left out."""
    for key, value in flatten(config):
        if any(MARK in text for text in find_texts(value)):
            raise ConfigError(f"{key} is a secret, which a run does not store; give it again: ++{key}=...")
