"""Take texts that a user names, alone or in a file, and turn them into what the model of a run reads."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from omegaconf import DictConfig

from vitlab.data.batches.batch import TextView
from vitlab.data.targets import Texts
from vitlab.data.text_datamodule import collate_texts, finish_texts
from vitlab.errors import ConfigError, DataError
from vitlab.tasks import Answering
from vitlab.vocabulary import Vocabulary


def require_input(cfg: DictConfig, key: str) -> str:
    """Return the value of `key`, images or texts. Raises ConfigError if the other kind of input is given, or none."""
    other = {"images": "texts", "texts": "images"}[key]
    if cfg[other] is not None:
        raise ConfigError(f"run={cfg.run} reads {key}; give {key}=... instead of {other}=")
    if cfg[key] is None:
        raise ConfigError(f"{key} has no value; set {key}=... to the input of run={cfg.run}")
    return str(cfg[key])


def ask_question(cfg: DictConfig, task: Any) -> Any:
    """Give a task that is asked questions with the one that the command has, and any other as it is. Raises ConfigError
    where the question is missing, or not for this run, and DataError for one that the model cannot read."""
    if isinstance(task, Answering):
        if cfg.question is None:
            raise ConfigError(f"run={cfg.run} answers questions; set a question, such as question='how many?'")
        return task.ask(str(cfg.question))
    if cfg.question is not None:
        raise ConfigError(
            f"run={cfg.run} does not answer questions; leave out question=, or give a run of task=answering"
        )
    return task


def find_texts(texts: str, vocabulary: Vocabulary, max_length: int) -> list[str]:
    """Take a text, or the lines of a file. Raises DataError for none, for one that is empty or longer than the model
    reads, and for one that the vocabulary does not know."""
    found = [texts]
    if os.path.isfile(texts):  # False for what no file can be named
        try:
            found = Path(texts).read_text(encoding="utf-8-sig").splitlines()
        except UnicodeDecodeError as error:
            raise DataError(f"texts: {texts} is not UTF-8 text; save it in UTF-8") from error
    for text in found or [""]:
        if not text.strip():
            raise DataError("texts: one of them is empty; remove it")
        if (length := len(vocabulary.encode(text))) > max_length:
            raise DataError(
                f"the text '{text}' has {length} tokens with its end token, but the model reads at most {max_length}"
            )
    return found


def text_view(read: list[str], vocabulary: Vocabulary, device: torch.device) -> TextView:
    """Encode texts as a model takes them."""
    view: TextView = finish_texts(collate_texts(Texts(read, vocabulary), None, np.arange(len(read))).to(device)).view
    return view
