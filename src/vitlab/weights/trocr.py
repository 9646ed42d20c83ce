"""TrOCR's encoder and decoder (Li et al., 2021, arXiv:2109.10282) as Hugging Face's VisionEncoderDecoderModel writes
them, and the tokenizer beside them.

M max_position_embeddings, D d_model
"""

import json
import math
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vitlab.errors import CheckpointError
from vitlab.vocabulary import SpecialTokens, TokenizerVocabulary, build_byte_pairs
from vitlab.weights import hub, huggingface
from vitlab.weights.form import LoadedWeights, describe_source
from vitlab.weights.renaming import Rules, Tensors, rename, stack

KIND = "vision-encoder-decoder"
ENCODERS = ("vit", "deit")
DECODER = {  # what a config.json need not say
    "decoder_attention_heads": 16,
    "activation_function": "gelu",
    "max_position_embeddings": 512,
    "scale_embedding": False,
    "use_learned_position_embeddings": True,
    "layernorm_embedding": True,
    "tie_word_embeddings": True,
    "pad_token_id": 1,
    "decoder_start_token_id": 2,
    "eos_token_id": 2,
}
RULES: Rules = (
    (r"^decoder\.model\.decoder\.", "decoder."),
    (r"^decoder\.embed_tokens\.", "decoder.embed.tokens."),
    (r"^decoder\.embed_positions\.weight$", "decoder.embed.position.pos_embed"),
    (r"^decoder\.layernorm_embedding\.", "decoder.embed.norm."),
    (r"^decoder\.output_projection\.", "decoder.head."),
    (r"^decoder\.layers\.", "decoder.blocks."),
    (r"\.self_attn\.([qkv])_proj\.", r".attn.\1."),
    (r"\.self_attn\.out_proj\.", ".attn.proj."),
    (r"\.encoder_attn\.([qkv])_proj\.", r".cross_attn.\1."),
    (r"\.encoder_attn\.out_proj\.", ".cross_attn.proj."),
    (r"\.self_attn_layer_norm\.", ".norm1."),
    (r"\.encoder_attn_layer_norm\.", ".norm2."),
    (r"\.final_layer_norm\.", ".norm3."),
    (r"\.(fc[12])\.", r".mlp.\1."),
)
UNUSED_ROWS = 2  # rows of their position table that are never used
SPECIAL = ("decoder_start_token_id", "eos_token_id", "pad_token_id")  # begin, end, padding

TOKENIZER_FILES = ("generation_config.json", "tokenizer.json", "tokenizer_config.json", "vocab.json", "merges.txt")


def read(origin: str, tensors: Tensors, config: dict[str, Any]) -> LoadedWeights:
    """Tensors by the names of a `Captioner`, with what the config says of both parts. Padding within a text, which no
    text has, would have no place among their sines, and has one here. Raises CheckpointError for parts that are not
    known to compute what ours do."""
    encoder = dict(config.get("encoder") or {})
    decoder = DECODER | {key: value for key, value in dict(config.get("decoder") or {}).items() if value is not None}
    for part, kind, known in (
        ("encoder", encoder.get("model_type"), ENCODERS),
        ("decoder", decoder.get("model_type"), ("trocr",)),
    ):
        if kind not in known:
            raise CheckpointError(
                f"the {part} of {origin} is of kind '{kind}', which is not known to compute the same as "
                f"ours; the supported kinds are {', '.join(known)}"
            )
    images = {name.removeprefix("encoder."): value for name, value in tensors.items() if name.startswith("encoder.")}
    encoder.pop("pooler_act", None)  # belongs to a layer that is not used here
    reads = describe_source(origin, huggingface.FORM, images, huggingface.read_config(encoder, origin))
    writes = rename_decoder(
        origin, {name: v for name, v in tensors.items() if not name.startswith("encoder.")}, decoder
    )
    activation = decoder["activation_function"]
    facts = {
        "num_heads": decoder["decoder_attention_heads"],
        "norm": "layer_norm",
        "norm_eps": 1e-5,
        "norm_first": False,
        "mlp": huggingface.ACTIVATIONS.get(activation, activation),
        "position": "learned_1d" if decoder["use_learned_position_embeddings"] else "sincos_1d",
        "scale_embedding": decoder["scale_embedding"],
        "embed_norm": decoder["layernorm_embedding"],
        "causal": True,
        "scaled_attention": True,
    }
    return LoadedWeights(
        origin,
        "TrOCR",
        {f"encoder.{name}": value for name, value in reads.tensors.items()} | writes,
        {f"encoder.{key}": value for key, value in reads.facts.items()}
        | {f"decoder.{key}": value for key, value in facts.items()},
        reads.grid,
        reads.interpolation,
        rf"encoder\.({huggingface.FORM.extras})",
    )


def rename_decoder(origin: str, tensors: Tensors, config: dict[str, Any]) -> Tensors:
    """Rename the decoder's tensors to ours."""
    found = {name: value for name, value in tensors.items() if not name.endswith("._float_tensor")}  # of early versions
    bridge = {kind: found.pop(f"enc_to_dec_proj.{kind}", None) for kind in ("weight", "bias")}
    found = stack(stack(rename(found, RULES), "attn", "qkv"), "cross_attn", "kv")
    if bridge["weight"] is not None:
        found = merge_projection(found, bridge["weight"], bridge["bias"])
    place, rows = "decoder.embed.position.pos_embed", "decoder.embed.tokens.weight"
    if config["use_learned_position_embeddings"]:
        if place in found:
            found[place] = found[place][UNUSED_ROWS:]
    elif rows in found:
        if config["decoder_start_token_id"] == config["pad_token_id"]:
            raise CheckpointError(f"{origin} begins texts with its padding token, which has no position embedding")
        first = config["pad_token_id"] + 1
        found[place] = waves(first, config["max_position_embeddings"], found[rows].shape[1])
    if config["tie_word_embeddings"] and rows in found:
        head = found.setdefault("decoder.head.weight", found[rows])
        if not torch.equal(head, found[rows]):
            raise CheckpointError(
                f"{origin} says that its decoder scores by its embeddings, but holds other weights for that"
            )
    return found


def merge_projection(tensors: Tensors, weight: Tensor, bias: Tensor | None) -> Tensors:
    """Join a linear map of the memory with those that make keys and values of it: W(Px + p) + b = (WP)x + (Wp + b)."""
    joined = dict(tensors)
    for name, value in tensors.items():
        if name.endswith(".cross_attn.kv.weight"):
            joined[name] = (value.double() @ weight.double()).to(value.dtype)
            own = name.replace("weight", "bias")
            if bias is not None and own in tensors:
                joined[own] = tensors[own] + (value.double() @ bias.double()).to(value.dtype)
    return joined


def waves(first: int, count: int, width: int) -> Tensor:
    """Compute their sines, then cosines, of `count` places from the number `first` on. -> (M, D)

    In float32, in which they compute the frequencies.
    """
    half = width // 2
    frequency = torch.exp(torch.arange(half).float() * -(math.log(10_000) / (half - 1)))
    angle = torch.arange(first, first + count).float()[:, None] * frequency
    return torch.cat([angle.sin(), angle.cos()], dim=1)


# -- the tokenizer


def read_tokenizer(source: str) -> TokenizerVocabulary:
    """The vocabulary of TrOCR, in a folder or as hf:ORG/NAME: out of its tokenizer.json, or out of the vocab.json and
    merges.txt of a RoBERTa. Raises CheckpointError where there is neither, and where its config names no special
    tokens; ConfigError without the `tokenizers` library."""
    folder = fetch_folder(source)
    return TokenizerVocabulary(tokenizer_content(folder), special_tokens(folder))


def fetch_folder(source: str) -> Path:
    """Find the files of a source, and download them if need be."""
    kind, _, rest = source.partition(":")
    if kind != "hf" or not rest:
        path = Path(source).expanduser()
        return path.parent if path.is_file() else path
    repository, _, revision = rest.partition("@")
    folder = hub.fetch(repository, ("config.json",), revision or None).parent
    for name in TOKENIZER_FILES:
        with suppress(CheckpointError):  # what is missing will be missed by who reads the folder
            hub.fetch(repository, (name,), revision or None)
    return folder


def special_tokens(folder: Path) -> SpecialTokens:
    """Find the special tokens: in generation_config.json, else in the whole's config, else in the decoder's."""
    config = read_json(folder / "config.json")
    said = [read_json(folder / "generation_config.json"), config, config.get("decoder") or {}]
    numbers = [next((each[key] for each in said if each.get(key) is not None), None) for key in SPECIAL]
    for key, number in zip(SPECIAL, numbers, strict=True):
        if not isinstance(number, int):
            raise CheckpointError(f"the config.json in {folder} gives {key} as {number}, not as one token's number")
    return SpecialTokens(*numbers)  # type: ignore[arg-type]


def tokenizer_content(folder: Path) -> str:
    """Read a tokenizer.json's text."""
    if (folder / "tokenizer.json").is_file():
        return (folder / "tokenizer.json").read_text(encoding="utf-8")
    kind = read_json(folder / "tokenizer_config.json").get("tokenizer_class", "")
    words, merges = folder / "vocab.json", folder / "merges.txt"
    if not kind.startswith("Roberta") or not words.is_file() or not merges.is_file():
        raise CheckpointError(
            f"{folder} has no tokenizer.json; write one there: "
            f"transformers.AutoTokenizer.from_pretrained('{folder}').save_pretrained('{folder}')"
        )
    return build_byte_pairs(words, merges)


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON file; nothing where it is not there. Raises CheckpointError for a damaged one."""
    try:
        found = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    except ValueError as error:
        raise CheckpointError(f"{path} is damaged: {error}") from error
    return found if isinstance(found, dict) else {}
