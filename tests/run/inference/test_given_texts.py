"""Texts that a user names: one of them, or the lines of a file, as the model of a run reads them."""

import pytest
import torch
from omegaconf import OmegaConf

from vitlab.errors import ConfigError, DataError
from vitlab.run.inference.given_texts import ask_question, find_texts, require_input, text_view
from vitlab.tasks import Answering
from vitlab.vocabulary import CharacterVocabulary

KNOWN = CharacterVocabulary("abc ")


def command(**keys):
    return OmegaConf.create({"run": "run", "images": None, "texts": None, "question": None} | keys)


@pytest.mark.parametrize(("key", "other"), [("images", "texts"), ("texts", "images")])
def test_a_command_is_given_what_its_run_reads(key, other):
    assert require_input(command(**{key: 7}), key) == "7"
    with pytest.raises(ConfigError, match=f"run=run reads {key}; give {key}=... instead of {other}="):
        require_input(command(**{key: "a", other: "b"}), key)
    with pytest.raises(ConfigError, match=f"{key} has no value; set {key}=..."):
        require_input(command(), key)


def test_a_run_that_answers_is_asked_and_no_other():
    class Asked(Answering):
        def __init__(self):
            torch.nn.Module.__init__(self)

        def ask(self, question):
            return f"asked {question!r}"

    assert ask_question(command(question=7), Asked()) == "asked '7'"
    with pytest.raises(ConfigError, match="run=run answers questions; set a question"):
        ask_question(command(), Asked())
    assert ask_question(command(), "another task") == "another task"
    with pytest.raises(ConfigError, match="run=run does not answer questions; leave out question="):
        ask_question(command(question="how many?"), "another task")


def test_a_text_is_itself_or_the_lines_of_a_file(tmp_path):
    assert find_texts("ab", KNOWN, 3) == ["ab"]
    assert find_texts("a" * 300, KNOWN, 400) == ["a" * 300]  # too long for the name of a file
    file = tmp_path / "texts"
    file.write_bytes(b"\xef\xbb\xbfab\r\nc\n")  # as Windows writes it
    assert find_texts(str(file), KNOWN, 3) == ["ab", "c"]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "one of them is empty"),
        (b"a\n\nb\n", "one of them is empty"),
        (b"a\n   \n", "one of them is empty"),
        (b"ab\nabc\n", "the text 'abc' has 4 tokens with its end token, but the model reads at most 3"),
        (b"xy", "the character 'x' of the text 'xy' is not among"),
        (b"\xff\xfe", "is not UTF-8 text; save it in UTF-8"),
    ],
)
def test_texts_that_the_model_cannot_read_are_refused(tmp_path, content, sentence):
    (tmp_path / "texts").write_bytes(content)
    with pytest.raises(DataError, match=sentence):
        find_texts(str(tmp_path / "texts"), KNOWN, 3)


def test_texts_become_tokens_and_padding():
    view = text_view(["ab", "c"], KNOWN, torch.device("cpu"))
    assert view.words.tolist() == [[3, 4, 2], [5, 2, 0]]
    assert view.present.tolist() == [[True, True, True], [True, True, False]]
