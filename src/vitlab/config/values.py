"""Write plain values as Hydra's grammar reads them, and as sentences show them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hydra.core.override_parser.types import Quote, QuotedString


def quote_text(text: str, quote: Quote = Quote.single) -> str:
    return QuotedString(text, quote).with_quotes()


def format_value(value: Any, quote: Quote = Quote.single) -> str:
    """Write a value so that Hydra reads it back; a reference in a text stays one. Raises TypeError for a value that no
    YAML holds."""
    if isinstance(value, str | Path):
        return quote_text(str(value), quote)
    if isinstance(value, list | tuple):
        return f"[{','.join(format_value(one, quote) for one in value)}]"
    if isinstance(value, Mapping):
        return f"{{{','.join(f'{key}:{format_value(one, quote)}' for key, one in value.items())}}}"
    if value is None or isinstance(value, int | float):
        return show_value(value)
    raise TypeError(
        f"a {type(value).__name__} cannot be a value in a config; give a number, a text, None, a list or a dict"
    )


def show_value(value: Any) -> str:
    """Write a value for a sentence."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return repr(value) if value == "" else str(value)
