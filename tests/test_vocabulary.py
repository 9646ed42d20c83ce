"""Texts as numbers and back, whatever the alphabet; what a vocabulary does not know it names."""

import json
import sys

import pytest
import torch
from alphabets import WORDS, letters
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from vitlab.errors import CheckpointError, ConfigError, DataError
from vitlab.vocabulary import CharacterVocabulary, SpecialTokens, TokenizerVocabulary, restore_vocabulary


def byte_pairs():
    """A small tokenizer of bytes, as RoBERTa's; all of its tokens are known."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=WORDS, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(["a line of text, and another line of text"], trainer)
    return tokenizer


PAIRS = byte_pairs()


def written(tokenizer, folder):
    tokenizer.save(str(folder / "tokenizer.json"))
    return TokenizerVocabulary.from_file(folder / "tokenizer.json", begin="<s>", end="</s>", padding="<pad>")


# -- characters


@given(st.lists(st.text(), min_size=1).filter(any))
@settings(deadline=None, max_examples=30)
def test_characters_that_were_found_are_written_and_read_again(texts):
    vocabulary = CharacterVocabulary.collect_from(texts)
    assert vocabulary.pieces == sorted(set("".join(texts)))
    assert restore_vocabulary(json.loads(json.dumps(vocabulary.state()))) == vocabulary
    for text in texts:
        tokens = vocabulary.encode(text)
        assert tokens[-1] == vocabulary.special.end
        assert len(tokens) == len(text) + 1
        assert not {*tokens[:-1]} & {*vocabulary.special}
        assert max(tokens) < len(vocabulary)
        begin, end, padding = vocabulary.special
        assert vocabulary.decode([begin, *tokens, padding, padding, tokens[0], end]) == text


def test_an_unknown_character_is_named():
    vocabulary = CharacterVocabulary.collect_from(["12", "3"])
    assert len(vocabulary) == 6
    with pytest.raises(DataError, match=r"^the character 'x' of the text '1x2y' is not among the 3 of the vocabulary"):
        vocabulary.encode("1x2y")


@pytest.mark.parametrize("characters", [[], ["a", "a"], ["ab"], [""]])
def test_a_vocabulary_without_characters_or_with_one_twice_is_refused(characters):
    with pytest.raises(ConfigError, match=r"the vocabulary is empty|a vocabulary needs single characters"):
        CharacterVocabulary(characters)
    assert CharacterVocabulary("ab") != CharacterVocabulary("ba")


# -- a tokenizer's file


@given(st.text(st.characters(exclude_categories=["Cs"])))
@settings(deadline=None, max_examples=50)
def test_pieces_of_bytes_write_any_text(text):
    vocabulary = TokenizerVocabulary(PAIRS.to_str(), SpecialTokens(0, 2, 1))
    tokens = vocabulary.encode(text)
    assert tokens[-1] == 2
    assert not {*tokens[:-1]} & {0, 1, 2}
    assert vocabulary.decode([*tokens, 1, 1, 5]) == text


def test_a_tokenizer_is_read_from_its_file_and_kept_whole(tmp_path):
    vocabulary = written(PAIRS, tmp_path)
    assert vocabulary.special == SpecialTokens(begin=0, end=2, padding=1)
    assert len(vocabulary) == PAIRS.get_vocab_size()
    text = "a line of text"
    assert len(vocabulary.encode(text)) < len(text)
    assert vocabulary.encode(text)[:-1] == PAIRS.encode(text, add_special_tokens=False).ids
    torch.save(vocabulary.state(), tmp_path / "state.pt")
    again = restore_vocabulary(torch.load(tmp_path / "state.pt", weights_only=True))
    assert again == vocabulary
    assert again.encode(text) == vocabulary.encode(text)
    assert vocabulary != written(letters(), tmp_path)


def test_words_of_special_tokens_in_a_text_are_text(tmp_path):
    vocabulary = written(PAIRS, tmp_path)
    assert vocabulary.decode(vocabulary.encode("a</s>b<pad>")) == "a</s>b<pad>"


def test_a_tokenizers_own_cut_and_fill_are_not_used(tmp_path):
    tokenizer = byte_pairs()
    tokenizer.enable_truncation(3)
    tokenizer.enable_padding(length=50)
    vocabulary = written(tokenizer, tmp_path)
    assert vocabulary.decode(vocabulary.encode("another line")) == "another line"
    assert len(vocabulary.encode("a")) == 2


def test_a_character_that_no_piece_has_is_named(tmp_path):
    vocabulary = written(letters(), tmp_path)
    assert vocabulary.decode(vocabulary.encode("abba")) == "abba"
    with pytest.raises(DataError, match=r"^'x' of the text 'bxa' is in no piece of the tokenizer$"):
        vocabulary.encode("bxa")


def test_a_character_that_a_tokenizer_drops_is_named(tmp_path):
    tokenizer = Tokenizer(models.BPE({piece: i for i, piece in enumerate([*WORDS, "a", "b"])}, []))
    vocabulary = written(tokenizer, tmp_path)
    assert tokenizer.encode("axb").tokens == ["a", "b"]
    with pytest.raises(DataError, match=r"^'x' of the text 'axb' is in no piece"):
        vocabulary.encode("axb")


def test_what_is_no_tokenizer_is_refused(tmp_path):
    names = {"begin": "<s>", "end": "</s>", "padding": "<pad>"}
    path = tmp_path / "tokenizer.json"
    with pytest.raises(CheckpointError, match=r"tokenizer\.json cannot be read as a tokenizer"):
        TokenizerVocabulary.from_file(path, **names)
    path.write_text('{"model": 3}')
    with pytest.raises(CheckpointError, match=r"this is not a tokenizer\.json of the tokenizers library"):
        TokenizerVocabulary.from_file(path, **names)
    PAIRS.save(str(path))
    with pytest.raises(CheckpointError, match=r"has no token '<bos>'"):
        TokenizerVocabulary.from_file(path, **names | {"begin": "<bos>"})
    with pytest.raises(CheckpointError, match=r"a tokenizer of \d+ tokens has none of the numbers \[0, 2, 300\]"):
        TokenizerVocabulary(PAIRS.to_str(), SpecialTokens(0, 2, 300))
    with pytest.raises(
        CheckpointError, match="a vocabulary of kind 'syllables' is not one of: characters, words, spaced words, token"
    ):
        restore_vocabulary({"kind": "syllables"})


def test_without_the_library_one_sentence_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ConfigError, match=r"^a tokenizer's file needs tokenizers: pip install tokenizers$"):
        TokenizerVocabulary(PAIRS.to_str(), SpecialTokens(0, 2, 1))
    assert restore_vocabulary({"kind": "characters", "characters": "01"}).encode("10") == [4, 3, 2]
