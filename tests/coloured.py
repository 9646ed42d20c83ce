"""Pictures of one colour each in a folder, and a table that tells each of them in several captions, or asks about
it."""

import csv

import numpy as np
from PIL import Image
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

COLOURS = {"red": (220, 40, 40), "green": (40, 200, 40), "blue": (40, 40, 220)}
WAYS = ("{}", "a {} picture", "all of it is {}")
BERT = ["[CLS]", "[SEP]", "[PAD]"]  # what begins, ends and fills up a text


def draw(folder, count=60, ways=2, name="captions.csv"):
    """So many pictures, each told in some of the `WAYS`."""
    random = np.random.RandomState(0)
    rows = [("path", "caption")]
    for i in range(count):
        colour = list(COLOURS)[i % len(COLOURS)]
        pixels = random.randint(-30, 30, (16, 16, 3)) + COLOURS[colour]
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(folder / f"{i}.png")
        rows += [(f"{i}.png", WAYS[(i + k) % len(WAYS)].format(colour)) for k in range(ways)]
    with open(folder / name, "w", newline="", encoding="utf-8") as table:
        csv.writer(table).writerows(rows)


def ask(folder, name="questions.csv", count=60):
    """Ask two questions about each of so many pictures of one colour."""
    draw(folder, count)
    rows = [("path", "question", "answer")]
    for i in range(count):
        colour = list(COLOURS)[i % len(COLOURS)]
        rows += [(f"{i}.png", "Which colour?", colour), (f"{i}.png", "Is it red?", "yes" if colour == "red" else "no")]
    with open(folder / name, "w", newline="", encoding="utf-8") as table:
        csv.writer(table).writerows(rows)


def save_pieces(folder, name="captions.csv"):
    """Write tokenizer.json, of words and parts of them with BERT's special tokens, made of the captions."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=80, special_tokens=["[UNK]", *BERT], show_progress=False)
    with open(folder / name, newline="", encoding="utf-8") as table:
        tokenizer.train_from_iterator([row["caption"] for row in csv.DictReader(table)], trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
