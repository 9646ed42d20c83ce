"""Choose the tokens that texts of one's own are written in."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from vitlab.errors import CheckpointError, ConfigError, DataError
from vitlab.vocabulary import BegunVocabulary, CharacterVocabulary, TokenizerVocabulary, Vocabulary


def vocabulary_for(
    texts: Iterable[str],
    *,
    characters: str | None,
    tokenizer: str | None,
    special_tokens: Sequence[str],
    begin_token: bool,
) -> Vocabulary:
    """Take the pieces of a tokenizer's file, whose `special_tokens` begin, end and fill up a text, `begin_token`: also
    where it is read; or the characters that are given; or those that occur in the texts. Raises DataError for a file
    that is no tokenizer, or has no such tokens, and ConfigError for characters that are given twice."""
    if tokenizer is not None:
        begin, end, padding = special_tokens
        try:
            kind = BegunVocabulary if begin_token else TokenizerVocabulary
            return kind.from_file(Path(tokenizer), begin=begin, end=end, padding=padding)
        except CheckpointError as error:
            raise DataError(f"data.source.tokenizer={tokenizer}: {error}") from error
    if characters is None:
        return CharacterVocabulary.found_in(texts)
    try:
        return CharacterVocabulary(characters)
    except ConfigError as error:
        raise ConfigError(f"data.source.characters: {error}") from error
