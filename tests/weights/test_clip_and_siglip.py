"""CLIP and SigLIP as Hugging Face and OpenCLIP write them: the same features of images and texts, the same tokens."""

import json
import re

import coloured
import pytest
import torch
import transformers
from conftest import BARE, vit_options
from foreign import images, randomized
from safetensors.torch import save_file
from texts import OPTIONS
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

import vitlab
from vitlab.errors import CheckpointError
from vitlab.models import ImageTextModel, TextEncoder, VisionTransformer
from vitlab.vocabulary import SpecialTokens, restore_vocabulary
from vitlab.weights import load, read_text_tokenizer

SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}
IMAGES = SIZES | {"image_size": 32, "patch_size": 4}
TEXTS = SIZES | {"vocab_size": 23, "max_position_embeddings": 9, "bos_token_id": 1, "eos_token_id": 22}
KINDS = {
    "clip": (transformers.CLIPConfig, transformers.CLIPModel),
    "siglip": (transformers.SiglipConfig, transformers.SiglipModel),
}
OURS = {
    "clip": {"feature_dim": 16, "text_pool": "end", "project_images": True, "text_bias": False, "bias": None},
    "siglip": {"feature_dim": 32, "text_pool": "last", "project_images": False, "text_bias": True, "bias": -5.0},
}
OURS_OF_IMAGES = {
    "clip": {"pre_norm": True, "mlp": "quick_gelu", "norm_eps": 1e-5},
    "siglip": {"class_token": False, "pool": "map", "mlp": "gelu_tanh"},
}
OURS_OF_TEXTS = {
    "clip": {"causal": True, "mlp": "quick_gelu", "norm_eps": 1e-5},
    "siglip": {"causal": False, "mlp": "gelu_tanh", "norm_eps": 1e-6},
}


def theirs(kind, **changes):
    config, model = KINDS[kind]
    more = {"projection_dim": 16} if kind == "clip" else {}
    return randomized(model(config(vision_config=IMAGES, text_config=TEXTS | changes, **more)))


def ours(kind, image=None, text=None, **changes):
    sizes = {"in_chans": 3, "mlp_ratio": None, "mlp_dim": 48, "num_classes": 1}
    reads = {"vocab_size": 23, "embed_dim": 32, "num_heads": 2, "mlp_dim": 48, "norm_first": True}
    reads |= {"position": "learned_1d", "scale_embedding": False}
    model = ImageTextModel(
        encoder=VisionTransformer(**vit_options(**sizes | OURS_OF_IMAGES[kind] | (image or {}))),
        text=TextEncoder(**OPTIONS | reads | OURS_OF_TEXTS[kind] | (text or {})),
        patch_size=4,
        scale=10.0,
        **OURS[kind] | changes,
    )
    return randomized(model, seed=3)


def texts():
    lengths = torch.tensor([9, 5])
    tokens = torch.randint(3, 22, (2, 9), generator=torch.Generator().manual_seed(5))
    tokens[:, 0] = 1
    tokens[torch.arange(2), lengths - 1] = 22
    return tokens.where(torch.arange(9) < lengths[:, None], 22), lengths


def same(model, other, size=32):
    tokens, lengths = texts()
    resized = {} if size == 32 else {"interpolate_pos_encoding": True}
    with torch.inference_mode():
        expected = other(input_ids=tokens, pixel_values=images(size), **resized)
        found = model.eval()(tokens, lengths, images(size))
    assert expected.image_embeds.std() > 0.05
    torch.testing.assert_close(found.image, expected.image_embeds, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(found.text, expected.text_embeds, atol=1e-5, rtol=1e-5)
    logits = found.scale * found.image @ found.text.T + found.bias
    torch.testing.assert_close(logits, expected.logits_per_image, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_features_are_theirs(kind, tmp_path):
    other = theirs(kind)
    other.save_pretrained(tmp_path)
    model = ours(kind)
    report = load(model, str(tmp_path), partial=False)
    assert report.counts()["initialised anew"] == 0
    assert report.counts()["left over"] == 0
    same(model, other)


def test_texts_may_be_shorter_and_images_larger_than_theirs(tmp_path):
    other = theirs("clip")
    other.save_pretrained(tmp_path)
    model = ours("clip", image={"image_size": 48}, text={"max_length": 6})
    load(model, str(tmp_path), partial=False)
    tokens = torch.tensor([[1, 5, 7, 9, 22, 22]])
    with torch.inference_mode():
        expected = other.get_text_features(input_ids=tokens).pooler_output
    found = model.encode_texts(tokens, torch.tensor([5]))
    torch.testing.assert_close(found, torch.nn.functional.normalize(expected, dim=1), atol=1e-5, rtol=1e-5)
    model = ours("clip", image={"image_size": 48})
    load(model, str(tmp_path), partial=False)
    same(model, other, size=48)


# -- by OpenCLIP's names

OPENAI = (
    (r"^vision_model\.embeddings\.class_embedding$", "visual.class_embedding"),
    (r"^vision_model\.embeddings\.position_embedding\.weight$", "visual.positional_embedding"),
    (r"^vision_model\.embeddings\.patch_embedding\.", "visual.conv1."),
    (r"^vision_model\.pre_layrnorm\.", "visual.ln_pre."),
    (r"^vision_model\.post_layernorm\.", "visual.ln_post."),
    (r"^vision_model\.encoder\.layers\.", "visual.transformer.resblocks."),
    (r"^text_model\.embeddings\.token_embedding\.", "token_embedding."),
    (r"^text_model\.embeddings\.position_embedding\.weight$", "positional_embedding"),
    (r"^text_model\.encoder\.layers\.", "transformer.resblocks."),
    (r"^text_model\.final_layer_norm\.", "ln_final."),
    (r"\.layer_norm([12])\.", r".ln_\1."),
    (r"\.self_attn\.out_proj\.", ".attn.out_proj."),
    (r"\.mlp\.fc1\.", ".mlp.c_fc."),
    (r"\.mlp\.fc2\.", ".mlp.c_proj."),
)


def openclip(model, prefix=""):
    """Their tensors by OpenCLIP's names, in which queries, keys and values are one and projections stand on end."""
    state = {}
    for old, tensor in model.state_dict().items():
        name = old
        for pattern, replacement in OPENAI:
            name = re.sub(pattern, replacement, name)
        if match := re.search(r"self_attn\.([qkv])_proj\.(weight|bias)$", name):
            whole = name[: match.start()] + f"attn.in_proj_{match[2]}"
            state.setdefault(whole, {})[match[1]] = tensor
        elif old in ("visual_projection.weight", "text_projection.weight"):
            state["visual.proj" if old.startswith("visual") else "text_projection"] = tensor.T
        elif not name.endswith("position_ids"):
            state[name] = tensor
    joined = {k: torch.cat([v[p] for p in "qkv"]) if isinstance(v, dict) else v for k, v in state.items()}
    of_texts = ("token_", "positional", "transformer", "ln_final", "text_projection")
    return {(prefix if name.startswith(of_texts) else "") + name: v.contiguous() for name, v in joined.items()}


@pytest.mark.parametrize("prefix", ["", "text."])
def test_features_are_theirs_by_openclips_names(prefix, tmp_path):
    other = theirs("clip")
    state = openclip(other, prefix) | {"attn_mask": torch.zeros(9, 9)}
    save_file(state, tmp_path / "open_clip.safetensors")
    model = ours("clip")
    report = load(model, str(tmp_path / "open_clip.safetensors"), partial=False)
    assert report.counts()["initialised anew"] == report.counts()["left over"] == 0
    same(model, other)


def test_siglip_by_openclips_names_has_timms_image_tower(tmp_path):
    other = theirs("siglip")
    other.save_pretrained(tmp_path)
    load(source := ours("siglip"), str(tmp_path), partial=False)
    state = {name: tensor for name, tensor in openclip(other).items() if not name.startswith("v")}
    state = {name.replace("text_model.head.", "text_projection."): tensor for name, tensor in state.items()}
    state = {name if name.startswith("logit") else f"text.{name}": tensor for name, tensor in state.items()}
    trunk = {f"visual.trunk.{name}": tensor for name, tensor in source.encoder.state_dict().items()}  # timm's are ours
    save_file(state | trunk, tmp_path / "open_clip.safetensors")
    load(model := ours("siglip"), str(tmp_path / "open_clip.safetensors"), partial=False)
    same(model, other)


# -- what is another one


@pytest.mark.parametrize(
    ("kind", "parts", "sentence"),
    [
        ("clip", {"text": {"causal": False}}, r"computes with text\.causal true, but the model with false"),
        ("clip", {"text": {"num_heads": 4}}, r"computes with text\.num_heads 2, but the model with 4"),
        ("clip", {"text": {"mlp": "gelu"}}, r"computes with text\.mlp quick_gelu, but the model with gelu"),
        ("clip", {"text_pool": "last"}, r"computes with text_pool end, but the model with last; set model\.text_pool"),
        ("clip", {"image": {"pool": "mean"}}, r"computes with encoder\.pool cls, but the model with mean"),
        ("clip", {"image": {"mlp": "gelu"}}, r"computes with encoder\.mlp quick_gelu"),
        ("clip", {"feature_dim": 12}, r"image_projection\.weight is 16x32 in it and 12x32 in the model"),
        ("clip", {"text": {"max_length": 10}}, r"pos_embed is 9x32 in it and 10x32 in the model"),
        ("siglip", {"text": {"max_length": 6}}, r"pos_embed is 9x32 in it and 6x32 in the model"),
        ("siglip", {"bias": None}, r"the model has no logit_bias"),
        ("siglip", {"text_pool": "end"}, r"computes with text_pool last"),
    ],
)
def test_a_model_that_is_another_is_refused(kind, parts, sentence, tmp_path):
    theirs(kind).save_pretrained(tmp_path)
    with pytest.raises(CheckpointError, match=sentence):
        load(ours(kind, **parts), str(tmp_path), partial=False)


def test_a_kind_that_is_not_known_is_refused(tmp_path):
    theirs("clip").save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"model_type": "align"}))
    with pytest.raises(CheckpointError, match=r"of kind 'align', which is not known .* kinds are clip, siglip$"):
        load(ours("clip"), str(tmp_path), partial=False)


# -- the tokenizer


def of_clip(folder, texts=("a photo of a cat", "a photo of a dog")):
    """A small one in the files of CLIP's folders, and in transformers' own hands."""
    trained = Tokenizer(models.BPE(end_of_word_suffix="</w>", unk_token="<|endoftext|>"))
    trained.normalizer = normalizers.Lowercase()
    trained.pre_tokenizer = pre_tokenizers.Whitespace()
    special = ["<|startoftext|>", "<|endoftext|>"]
    trainer = trainers.BpeTrainer(vocab_size=60, special_tokens=special, end_of_word_suffix="</w>", show_progress=False)
    trained.train_from_iterator(texts, trainer)
    state = json.loads(trained.to_str())["model"]
    merges = [tuple(merge) for merge in state["merges"]]
    other = transformers.CLIPTokenizer(vocab=state["vocab"], merges=merges)
    other.save_pretrained(folder)
    return other


def test_the_tokenizer_is_theirs(tmp_path):
    other = of_clip(tmp_path)
    vocabulary = read_text_tokenizer(str(tmp_path))
    begin, end = other.convert_tokens_to_ids(["<|startoftext|>", "<|endoftext|>"])
    assert vocabulary.special == SpecialTokens(begin=begin, end=end, padding=other.pad_token_id)
    for text in ("a photo of a cat", "A  dog"):
        assert vocabulary.encode(text) == other(text).input_ids
    assert restore_vocabulary(vocabulary.state()) == vocabulary


TINY_CLIP = ["model=clip_b16", "model.feature_dim=16", "model.encoder.patch_size=4", "model.pretrained=clip"]
TOWER = ("embed_dim=32", "depth=2", "num_heads=2", "mlp_ratio=null", "mlp_dim=48")
TINY_CLIP += [f"model.{tower}.{key}" for tower in ("encoder", "text") for key in TOWER]


@pytest.mark.slow
def test_captions_of_ones_own_are_read_as_clip_reads_them(cli, tmp_path):
    coloured.draw(tmp_path)
    read = ["red", "a blue picture"]
    words = of_clip(tmp_path / "clip", [*read, "all of it is green"])
    begin, end = words.convert_tokens_to_ids(["<|startoftext|>", "<|endoftext|>"])
    sizes = {"vocab_size": len(words), "max_position_embeddings": 40}
    other = theirs("clip", **sizes, bos_token_id=begin, eos_token_id=end)
    other.save_pretrained(tmp_path / "clip")
    options = ["task=contrastive", *TINY_CLIP, "data=listing", "data.source.file=captions.csv", "data.image_size=32"]
    options += ["data.source.text_column=caption", "data.source.allow_two_labels=true", "data.loading.num_workers=0"]
    options += ["data.source.tokenizer=clip/tokenizer.json", "data.source.begin_token=true", "trainer=cpu"]
    options += ["data.source.special_tokens=['<|startoftext|>','<|endoftext|>','<|endoftext|>']", "optimizer.lr=1e-12"]
    options += ["logger=none"]
    run = cli("train", *options, *BARE, "trainer.precision=32-true", "trainer.max_steps=1", tiny=False, folder="run")
    assert run.status == 0, run.err
    task = vitlab.load(tmp_path / "run", device="cpu")._task
    assert task.max_length < 40
    with torch.inference_mode():
        expected = other.get_text_features(**words(read, padding=True, return_tensors="pt")).pooler_output
        found = task.embed_classes(read)
    torch.testing.assert_close(found, torch.nn.functional.normalize(expected, dim=1), atol=1e-5, rtol=1e-5)


def test_a_folder_without_a_tokenizer_is_refused_in_one_sentence(tmp_path):
    with pytest.raises(CheckpointError, match=r"^.* has no tokenizer\.json; write one there: transformers\.AutoTok"):
        read_text_tokenizer(str(tmp_path))
    of_clip(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text("{}")
    with pytest.raises(CheckpointError, match="names no eos_token, which ends a text"):
        read_text_tokenizer(str(tmp_path))
