"""Choose the tokens of the user's own texts, and refuse a text that they cannot write."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from vitlab.errors import CheckpointError, ConfigError, DataError
from vitlab.vocabulary import ListedVocabulary, StartTokenVocabulary, TokenizerVocabulary, Vocabulary


def load_tokenizer_vocabulary(key: str, file: str, special_tokens: Sequence[str], begin_token: bool) -> Vocabulary:
    """Take the pieces of a tokenizer's file, whose `special_tokens` begin, end and fill up a text, `begin_token`: also
    where it is read. Raises DataError, which names the key, for a file that is no tokenizer, or has no such tokens."""
    begin, end, padding = special_tokens
    try:
        kind = StartTokenVocabulary if begin_token else TokenizerVocabulary
        return kind.from_file(Path(file), begin=begin, end=end, padding=padding)
    except CheckpointError as error:
        raise DataError(f"{key}={file}: {error}") from error


def build_listed_vocabulary(
    kind: type[ListedVocabulary], key: str, pieces: Sequence[str] | None, texts: Iterable[str]
) -> ListedVocabulary:
    """Take the pieces that are given, or, where these are None, those that occur in the texts. Raises ConfigError,
    which names the key, for pieces that are given twice."""
    if pieces is None:
        return kind.collect_from(texts)
    try:
        return kind(pieces)
    except ConfigError as error:
        raise ConfigError(f"{key}: {error}") from error


def check_texts(
    vocabulary: Vocabulary, texts: Sequence[str], rows: Iterable[int], place: Callable[[int], str], remedy: str
) -> None:
    """Raise DataError, which names its place, for a text in one of the rows that the vocabulary cannot write."""
    for row in rows:
        try:
            vocabulary.encode(texts[row])
        except DataError as error:
            raise DataError(f"{place(row)}: {error}; {remedy}") from error
