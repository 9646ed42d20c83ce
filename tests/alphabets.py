"""Tokenizers small enough for a test."""

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

WORDS = ["<s>", "<pad>", "</s>"]


def letters():
    """A tokenizer that knows a to e."""
    pieces = [*WORDS, "<unk>", *"abcde"]
    tokenizer = Tokenizer(models.WordLevel({piece: i for i, piece in enumerate(pieces)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens([AddedToken(word) for word in WORDS])
    return tokenizer
