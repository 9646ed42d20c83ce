"""Turn texts into numbers and back: by characters, by words, or by the pieces of a file that the `tokenizers` library
reads.

A vocabulary knows three tokens that no text holds: one begins, one ends, one pads what is shorter.
"""

import json
import re
import reprlib
from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple, Self

from vitlab.errors import CheckpointError, ConfigError, DataError, format_error


class SpecialTokens(NamedTuple):
    """Numbers of the tokens that begin and end a text, and of the one that stands where there is none."""

    begin: int
    end: int
    padding: int


class ListedVocabulary:
    """A token for each piece of a list, in its order, behind padding 0, begin 1 and end 2.

    A kind says how a text falls into pieces, and what stands between them.
    """

    special = SpecialTokens(begin=1, end=2, padding=0)
    kind: str
    between: str

    def __init__(self, pieces: Sequence[str]):
        self.pieces = list(pieces)
        self.numbers = {piece: len(self.special) + i for i, piece in enumerate(self.pieces)}

    @classmethod
    def split(cls, text: str) -> Sequence[str]:
        raise NotImplementedError

    @classmethod
    def collect_from(cls, texts: Iterable[str]) -> Self:
        """Collect the pieces that occur, in the order of Unicode. Raises ConfigError for texts without any."""
        found: set[str] = set()
        for text in texts:
            found.update(cls.split(text))
        return cls(sorted(found))

    def __len__(self) -> int:
        return len(self.special) + len(self.pieces)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.pieces == self.pieces

    def encode(self, text: str) -> list[int]:
        """Number the pieces of a text, and its end. Raises DataError, which names it, for an unknown one."""
        pieces = self.split(text)
        if unknown := [piece for piece in pieces if piece not in self.numbers]:
            raise DataError(
                f"the {self.kind.split()[-1].removesuffix('s')} {unknown[0]!r} of the text {text!r} is not among the "
                f"{len(self.pieces)} of the vocabulary, {self.between.join(self.pieces[:50])!r}"
            )
        return [*(self.numbers[piece] for piece in pieces), self.special.end]

    def decode(self, tokens: Iterable[int]) -> str:
        """Give the text of the tokens before the first end; other special tokens are no part of it."""
        written = takewhile(lambda token: token != self.special.end, tokens)
        first = len(self.special)
        return self.between.join(self.pieces[token - first] for token in written if token >= first)

    def state(self) -> dict[str, Any]:
        """Give plain types from which `restore_vocabulary` builds an equal vocabulary."""
        return {"kind": self.kind, self.kind: self.pieces}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        return cls(state[cls.kind])


class CharacterVocabulary(ListedVocabulary):
    """A token for each of some characters. Raises ConfigError for no characters, and for one that stands there twice or
    is more than one."""

    kind, between = "characters", ""

    def __init__(self, characters: Sequence[str]):
        if not characters:
            raise ConfigError("the vocabulary is empty; give at least one character")
        if any(len(character) != 1 for character in characters) or len(set(characters)) != len(characters):
            raise ConfigError(f"a vocabulary needs single characters, each once, not {list(characters)}")
        super().__init__(characters)

    @classmethod
    def split(cls, text: str) -> str:
        return text

    def state(self) -> dict[str, Any]:
        return {"kind": self.kind, "characters": "".join(self.pieces)}


class WordVocabulary(ListedVocabulary):
    """A token for each of some words. What stands between words, spaces and hyphens, is no token, and comes back as a
    space. Raises ConfigError for words that are none, or stand there twice."""

    kind, between = "words", " "
    word, apart = re.compile(r"[^\s-]+"), "spaces or hyphens"

    def __init__(self, words: Sequence[str]):
        if not words or len(set(words)) != len(words) or any(self.word.fullmatch(word) is None for word in words):
            raise ConfigError(f"a vocabulary has words, each once and without {self.apart}, and not {list(words)}")
        super().__init__(words)

    @classmethod
    def split(cls, text: str) -> list[str]:
        return cls.word.findall(text)


class SpacedWordVocabulary(WordVocabulary):
    """A token for each of some words, hyphens and all: what stands between spaces."""

    kind = "spaced words"
    word, apart = re.compile(r"\S+"), "spaces"


class TokenizerVocabulary:
    """The pieces of a tokenizer.json, whose whole content is `content`; `special` are numbers of its own tokens.

    Raises ConfigError where the `tokenizers` library is missing, CheckpointError for a content that it cannot read, or
    that has no tokens of these numbers.
    """

    kind = "tokenizer"

    def __init__(self, content: str, special: SpecialTokens):
        self.content = content
        self.special = SpecialTokens(*special)
        self.tokenizer = parse_tokenizer(content)
        if not 0 <= min(special) <= max(special) < len(self):
            raise CheckpointError(f"a tokenizer of {len(self)} tokens has none of the numbers {list(special)}")
        model = json.loads(content)["model"]
        self.unknown = model.get("unk_id", self.tokenizer.token_to_id(model.get("unk_token") or ""))

    @classmethod
    def from_file(cls, path: Path, *, begin: str, end: str, padding: str) -> Self:
        """Read a tokenizer.json, whose special tokens are called so, as in "<s>". Raises as the class, and
        CheckpointError for a file that cannot be read, or has no such token."""
        try:
            content = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise CheckpointError(f"{path} cannot be read as a tokenizer: {format_error(error)}") from error
        tokenizer = parse_tokenizer(content)
        numbers = [tokenizer.token_to_id(word) for word in (begin, end, padding)]
        if None in numbers:
            raise CheckpointError(f"{path} has no token {(begin, end, padding)[numbers.index(None)]!r}")
        return cls(content, SpecialTokens(*numbers))

    def __len__(self) -> int:
        return int(self.tokenizer.get_vocab_size(with_added_tokens=True))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TokenizerVocabulary) and self.state() == other.state()

    def encode(self, text: str) -> list[int]:
        """Number the pieces of a text, and its end. Raises DataError, which names it, for a part that is in none."""
        encoding = self.tokenizer.encode(text, add_special_tokens=False)
        pieces = zip(encoding.ids, encoding.offsets, strict=True)
        lost = [text[begin:end] for token, (begin, end) in pieces if token == self.unknown]
        if self.unknown is None:  # such a tokenizer leaves out what it does not know
            lost = [character for character in text if not character.isspace() and not self.knows(character)]
        if lost:
            raise DataError(f"{lost[0]!r} of the text {text!r} is in no piece of the tokenizer")
        return [*encoding.ids, self.special.end]

    def knows(self, character: str) -> bool:
        return bool(self.tokenizer.encode(character, add_special_tokens=False).ids)

    def decode(self, tokens: Iterable[int]) -> str:
        """Give the text of the tokens before the first end; other special tokens are no part of it."""
        pieces = list(takewhile(lambda token: token != self.special.end, tokens))
        text = self.tokenizer.decode([token for token in pieces if token not in self.special], skip_special_tokens=True)
        return str(text)

    def state(self) -> dict[str, Any]:
        return {"kind": self.kind, "content": self.content, "special": list(self.special)}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        return cls(state["content"], SpecialTokens(*state["special"]))


class StartTokenVocabulary(TokenizerVocabulary):
    """Texts have the token that begins them before the first piece, as CLIP's."""

    kind = "begun tokenizer"

    def encode(self, text: str) -> list[int]:
        return [self.special.begin, *super().encode(text)]


def import_tokenizers() -> Any:
    """Import the `tokenizers` library. Raises ConfigError without it."""
    try:
        import tokenizers
    except ImportError as error:
        raise ConfigError("a tokenizer's file needs tokenizers: pip install tokenizers") from error
    return tokenizers


def build_byte_pairs(words: Path, merges: Path) -> str:
    """Make a tokenizer.json from the two files of GPT-2's and RoBERTa's byte pieces. Raises ConfigError without the
    `tokenizers` library, CheckpointError for files that it cannot read."""
    parts = import_tokenizers()
    try:
        tokenizer = parts.Tokenizer(parts.models.BPE.from_file(str(words), str(merges)))
    except Exception as error:  # the library raises a plain one
        raise CheckpointError(f"{words} and {merges} cannot be read as a tokenizer: {format_error(error)}") from error
    tokenizer.pre_tokenizer = parts.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = parts.decoders.ByteLevel()
    return str(tokenizer.to_str())


def parse_tokenizer(content: str) -> Any:
    parts = import_tokenizers()
    try:
        tokenizer = parts.Tokenizer.from_str(content)
    except Exception as error:  # the library raises a plain one
        raise CheckpointError(
            f"this is not a tokenizer.json of the tokenizers library: {format_error(error)}"
        ) from error
    tokenizer.no_padding()
    tokenizer.no_truncation()
    tokenizer.encode_special_tokens = True  # "</s>" within a text is four characters
    return tokenizer


LISTED = (CharacterVocabulary, WordVocabulary, SpacedWordVocabulary)
Vocabulary = ListedVocabulary | TokenizerVocabulary
KINDS: dict[str, type[Vocabulary]] = {kind.kind: kind for kind in (*LISTED, TokenizerVocabulary, StartTokenVocabulary)}


def restore_vocabulary(state: Mapping[str, Any]) -> Vocabulary:
    """Rebuild a vocabulary from its `state`. Raises CheckpointError for an unknown kind."""
    if state.get("kind") not in KINDS:
        raise CheckpointError(f"a vocabulary of kind {state.get('kind')!r} is not one of: {', '.join(KINDS)}")
    return KINDS[state["kind"]].from_state(state)


def check_vocabularies(own: Mapping[str, Any], others: Mapping[str, Any], name: str) -> None:
    """Compare states of vocabularies by what they are for, where both sides have one. Raises CheckpointError for
    texts in other tokens than those that `name` was trained on."""
    for key, state in own.items():
        other = others.get(key)
        if state is not None and other is not None and state != other:
            raise CheckpointError(
                f"the texts of the data are in another vocabulary, {summarize_vocabulary(state)}, than {name} was "
                f"trained on, {summarize_vocabulary(other)}; its weights mean other tokens"
            )


def summarize_vocabulary(state: Mapping[str, Any]) -> str:
    listed = state.get(state["kind"])
    return f"that of a {state['kind']}" if listed is None else f"{state['kind']} {reprlib.repr(listed)}"
