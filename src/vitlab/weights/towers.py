"""CLIP and SigLIP with both towers: the names of Hugging Face (CLIPModel, SiglipModel), of OpenAI's CLIP and of
OpenCLIP, and the tokenizer beside them.

F feature_dim, D width of the text tower
"""

from collections.abc import Callable, Collection
from typing import Any

from vitlab.errors import CheckpointError
from vitlab.vocabulary import StartTokenVocabulary, TokenizerVocabulary
from vitlab.weights import huggingface, openclip_names, timm_names
from vitlab.weights.form import Form, LoadedWeights, StatedFacts, describe_source
from vitlab.weights.renaming import Rules, Tensors, rename, stack
from vitlab.weights.trocr import fetch_folder, read_json

KINDS: dict[str, dict[str, Any]] = {  # what a text_config need not say, and how such texts are read
    "clip": {"num_attention_heads": 8, "hidden_act": "quick_gelu", "layer_norm_eps": 1e-5},
    "siglip": {"num_attention_heads": 12, "hidden_act": "gelu_pytorch_tanh", "layer_norm_eps": 1e-6},
}
CAUSAL = {"clip": True, "siglip": False}
POOLS = {"clip": "end", "siglip": "last"}
HUGGING_FACE: Rules = (
    (r"^text_model\.embeddings\.token_embedding\.", "text.embed.tokens."),
    (r"^text_model\.embeddings\.position_embedding\.weight$", "text.embed.position.pos_embed"),
    (r"^text_model\.encoder\.layers\.", "text.blocks."),
    (r"^text_model\.final_layer_norm\.", "text.norm."),
    (r"^text_model\.head\.", "text_projection."),
    (r"\.self_attn\.([qkv])_proj\.", r".attn.\1."),
    (r"\.self_attn\.out_proj\.", ".attn.proj."),
    (r"\.layer_norm([12])\.", r".norm\1."),
)
OPENCLIP: Rules = (
    (r"^(text\.)?token_embedding\.", "text.embed.tokens."),
    (r"^(text\.)?positional_embedding$", "text.embed.position.pos_embed"),
    (r"^(text\.)?transformer\.resblocks\.", "text.blocks."),
    (r"^(text\.)?ln_final\.", "text.norm."),
    (r"^(text\.)?text_projection$", "text_projection.T"),
    (r"^text\.text_projection\.", "text_projection."),
    *openclip_names.BLOCK,
)
UNLEARNED = ("position_ids", "attn_mask")  # tables that some files hold, of what is known
TRUNK = "visual.trunk."  # OpenCLIP's image tower where it is timm's
Texts = tuple[Tensors, dict[str, Any]]


def has_two_towers(names: Collection[str]) -> bool:
    """Whether the names are of a model with two towers."""
    return any(name.startswith(("text_model.", "token_embedding.", "text.token_embedding.")) for name in names)


def read(origin: str, tensors: Tensors, config: dict[str, Any]) -> LoadedWeights:
    """Tensors by the names of an `ImageTextModel`, with what the config says of both towers; files of OpenCLIP say
    nothing of heads and activations. Raises CheckpointError for towers that are not known to compute what ours do."""
    tensors = {name: value for name, value in tensors.items() if not name.endswith(UNLEARNED)}
    reader: Callable[..., tuple[LoadedWeights, Texts]] = describe_openclip
    if any(name.startswith("text_model.") for name in tensors):
        reader = describe_huggingface
    images, (texts, facts) = reader(origin, tensors, config)
    found = {f"encoder.{name}": value for name, value in images.tensors.items()} | texts
    if "encoder.head.weight" in found:
        found["image_projection.weight"] = found.pop("encoder.head.weight")
    found |= {name: value.reshape(1) for name, value in tensors.items() if name in ("logit_scale", "logit_bias")}
    known = {f"encoder.{key}": value for key, value in images.facts.items()} | facts
    if images.pool is not None:
        known["encoder.pool"] = images.pool
    return LoadedWeights(origin, images.form, found, known, images.grid, images.interpolation, pool=images.pool)


def describe_huggingface(origin: str, tensors: Tensors, config: dict[str, Any]) -> tuple[LoadedWeights, Texts]:
    kind = str(config.get("model_type"))
    if kind not in KINDS:
        raise CheckpointError(
            f"{origin} is a model of images and texts of kind '{kind}', which is not known to compute the same as "
            "ours; "
            f"the supported kinds are {', '.join(KINDS)}"
        )
    of_texts = ("text_model.", "text_projection.")
    own = {name: value for name, value in tensors.items() if not name.startswith((*of_texts, "logit_"))}
    images = describe_source(origin, huggingface.FORM, own, huggingface.read_config(config, origin))
    texts = rename({name: value for name, value in tensors.items() if name.startswith(of_texts)}, HUGGING_FACE)
    said = KINDS[kind] | (config.get("text_config") or {})
    activation = said["hidden_act"]
    facts = describe_text_tower(said["layer_norm_eps"], kind) | {
        "text.num_heads": said["num_attention_heads"],
        "text.mlp": huggingface.ACTIVATIONS.get(activation, activation),
    }
    return images, (stack(texts, "attn", "qkv"), facts)


def describe_openclip(origin: str, tensors: Tensors, config: dict[str, Any]) -> tuple[LoadedWeights, Texts]:
    kind = "siglip" if "logit_bias" in tensors else "clip"
    own = {name: value for name, value in tensors.items() if name.startswith("visual.")}
    form: Form = openclip_names.FORM
    if any(name.startswith(TRUNK) for name in own):
        own, form = {name.removeprefix(TRUNK): value for name, value in own.items()}, timm_names.FORM
    images = describe_source(origin, form, own, StatedFacts({}))
    others = ("visual.", "logit_")
    texts = rename({name: value for name, value in tensors.items() if not name.startswith(others)}, OPENCLIP)
    if "text_projection.T" in texts:
        texts["text_projection.weight"] = texts.pop("text_projection.T").T
    return images, (texts, describe_text_tower(KINDS[kind]["layer_norm_eps"], kind))


def describe_text_tower(norm_eps: float, kind: str) -> dict[str, Any]:
    facts = {"norm": "layer_norm", "norm_eps": norm_eps, "norm_first": True, "position": "learned_1d"}
    facts |= {"scale_embedding": False, "embed_norm": False, "causal": CAUSAL[kind], "scaled_attention": True}
    return {f"text.{key}": value for key, value in facts.items()} | {"text_pool": POOLS[kind]}


# -- the tokenizer


def read_text_tokenizer(source: str) -> TokenizerVocabulary:
    """The vocabulary of CLIP or SigLIP, in a folder or as hf:ORG/NAME: its tokenizer.json, with the special tokens that
    tokenizer_config.json names. Raises CheckpointError where one of both is wanting; ConfigError without the
    `tokenizers` library."""
    folder = fetch_folder(source)
    if not (folder / "tokenizer.json").is_file():
        raise CheckpointError(
            f"{folder} has no tokenizer.json; write one there: "
            f"transformers.AutoTokenizer.from_pretrained('{folder}').save_pretrained('{folder}')"
        )
    said = read_json(folder / "tokenizer_config.json")
    begin, end, padding = (word(said.get(f"{key}_token")) for key in ("bos", "eos", "pad"))
    if end is None:
        raise CheckpointError(f"{folder / 'tokenizer_config.json'} names no eos_token, which ends a text")
    kind = TokenizerVocabulary if begin is None else StartTokenVocabulary
    return kind.from_file(folder / "tokenizer.json", begin=begin or end, end=end, padding=padding or end)


def word(token: Any) -> str | None:
    """A token as a tokenizer_config.json gives it: a word, or an object with its content."""
    return token.get("content") if isinstance(token, dict) else token
