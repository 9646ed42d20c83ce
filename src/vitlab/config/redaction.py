"""Keep secrets out of what a run stores of its config and its command: their keys are named, their values left out."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from omegaconf import DictConfig, ListConfig

from vitlab.atomic_files import write_whole
from vitlab.config.references import called
from vitlab.errors import ConfigError

MARK = "<not kept>"
WORDS = {"key", "apikey", "token", "secret", "password", "passwd", "credential", "credentials"}
OVERRIDE = re.compile(r"(?P<name>[+~]*[\w.@/-]+)=(?P<value>.+)", re.DOTALL)
LOGIN = re.compile(r"(?<=://)[^/@\s]+(?=@)")  # the user and password of a URL
FAST = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast, where PyYAML was built with it
SHORTEST = 6  # letters of a secret that is looked for within other words


class Redaction:
    """Called with plain values, give them without the secrets of a config: text under a key that names a secret, what
    comes from the environment, and logins in URLs, wherever they occur."""

    def __init__(self, cfg: DictConfig):
        self.secrets = {value for value in secrets_of(cfg) if value}

    def __call__(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {k: MARK if v and isinstance(v, str) and is_secret(k) else self(v) for k, v in value.items()}
        if isinstance(value, list | tuple):
            return [self(item) for item in value]
        return self.text(value) if isinstance(value, str) else value

    def text(self, text: str) -> str:
        override = OVERRIDE.fullmatch(text)
        if text in self.secrets:
            return MARK
        if override and is_secret(override["name"]):
            return f"{override['name']}={MARK}"
        if override and override["value"] in self.secrets:
            return f"{override['name']}={MARK}"
        for secret in self.secrets:
            if len(secret) >= SHORTEST:
                text = text.replace(secret, MARK)
        return LOGIN.sub(MARK, text)

    def clean(self, path: Path) -> None:
        """Rewrite a YAML without its secrets, if it has any."""
        content = yaml.load(path.read_bytes(), Loader=FAST)
        cleaned = self(content)
        if cleaned != content:
            write_whole(path, yaml.safe_dump(cleaned, sort_keys=False, allow_unicode=True).encode("utf-8"))


def is_secret(key: Any) -> bool:
    """Whether a key's last part names a secret: logger.wandb.api_key."""
    return not WORDS.isdisjoint(re.split(r"[\W_]+", str(key).rpartition(".")[2].lower()))


def secrets_of(node: Any) -> Iterator[str]:
    """Yield the text values below a node that are secret by their key, or come from the environment."""
    for key in node if isinstance(node, DictConfig) else range(len(node)):
        inner = node._get_node(key)
        if isinstance(inner, DictConfig | ListConfig) and not inner._is_none() and not inner._is_missing():
            if not inner._is_interpolation():
                yield from secrets_of(inner)
        elif inner is not None and not inner._is_missing() and (is_secret(key) or of_the_environment(inner._value())):
            value = node[key]
            if isinstance(value, str):
                yield value


def of_the_environment(written: Any) -> bool:
    """Whether a raw value reads the environment, or might: through a resolver whose name is itself a reference."""
    return isinstance(written, str) and any(name == "oc.env" or "${" in name for name in called(written))


def check_kept(value: Any, key: str = "") -> None:
    """Raise ConfigError, naming the key, for a saved config whose secret was left out."""
    if isinstance(value, dict):
        for name, inner in value.items():
            check_kept(inner, f"{key}.{name}" if key else str(name))
    elif isinstance(value, list):
        for inner in value:
            check_kept(inner, key)
    elif isinstance(value, str) and MARK in value:
        raise ConfigError(f"{key} held a secret, which is not kept with a run; give it again: ++{key}=...")
