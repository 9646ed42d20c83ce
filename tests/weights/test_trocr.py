"""TrOCR as Hugging Face writes it: the same logits, the same texts by greedy and beam search, the same tokenizer; what
is not known to be the same function is refused by name."""

import itertools
import json

import pytest
import torch
import transformers
from conftest import vit_options
from foreign import images, randomized
from texts import OPTIONS
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from vitlab.decoding import BeamSearch, Greedy
from vitlab.errors import CheckpointError
from vitlab.models import Captioner, Decoder, DistilledVisionTransformer, VisionTransformer
from vitlab.vocabulary import SpecialTokens, restore_vocabulary
from vitlab.weights import hub, load, own_run
from vitlab.weights.trocr import read_tokenizer

SQUARE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
SQUARE |= {"image_size": 32, "patch_size": 4}
WRITES = {"vocab_size": 23, "d_model": 32, "decoder_layers": 2, "decoder_attention_heads": 4, "decoder_ffn_dim": 48}
WRITES |= {"max_position_embeddings": 20, "is_decoder": True, "add_cross_attention": True}
OURS = {"vocab_size": 23, "max_length": 20, "memory_dim": 32, "embed_dim": 32, "mlp": "gelu", "mlp_dim": 48}
OURS |= {"position": "learned_1d", "scale_embedding": False, "embed_norm": True, "tied": True, "causal": True}
SLOW = (pytest.mark.slow, pytest.mark.ci)
# changes of their decoder, and of ours
VARIANTS = {
    "base": ({}, {}),
    "sines": ({"use_learned_position_embeddings": False}, {"position": "sincos_1d"}),
    "small": (
        {"use_learned_position_embeddings": False, "scale_embedding": True, "layernorm_embedding": False},
        {"position": "sincos_1d", "scale_embedding": True, "embed_norm": False},
    ),
    "relu": ({"activation_function": "relu"}, {"mlp": "relu"}),
    "wider": ({"d_model": 40, "cross_attention_hidden_size": 32}, {"embed_dim": 40}),
    "bridged": ({"d_model": 40}, {"embed_dim": 40}),
    "untied": ({"tie_word_embeddings": False}, {"tied": False}),
    "tied there": ({}, {"tied": False}),
    "shorter": ({}, {"max_length": 12}),
}


def theirs(kind="vit", qkv_bias=True, **changes):
    kinds = {"vit": transformers.ViTConfig, "deit": transformers.DeiTConfig}
    encoder = kinds[kind](**SQUARE, qkv_bias=qkv_bias)
    decoder = transformers.TrOCRConfig(**WRITES | changes)
    config = transformers.VisionEncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder)
    model = randomized(transformers.VisionEncoderDecoderModel(config))
    with torch.no_grad():  # texts that differ, and stop: layers outweigh the last token, and the end is likely
        for name, parameter in model.decoder.named_parameters():
            if "norm" in name:
                parameter.copy_(1 + parameter if name.endswith("weight") else 0.1 * parameter)
            elif name.endswith(("out_proj.weight", "fc2.weight")):
                parameter *= 4
        model.decoder.output_projection.weight[1:3] *= torch.tensor([[0.0], [1.5]])
    return model


def written(folder, **changes):
    model = theirs(**changes)
    model.save_pretrained(folder)
    return model


def ours(kind=VisionTransformer, encoder=None, **changes):
    sizes = {"in_chans": 3, "mlp_ratio": None, "mlp_dim": 64, "norm_eps": 1e-12}
    reader = kind(**vit_options(**sizes | (encoder or {})))
    return randomized(Captioner(encoder=reader, decoder=Decoder(**OPTIONS | OURS | changes), patch_size=4), seed=3)


def tokens(length=10):
    """Behind the one that begins; none is padding, which theirs gives no place among sines."""
    random = torch.randint(3, 23, (2, length), generator=torch.Generator().manual_seed(5))
    return torch.cat([torch.full((2, 1), 2), random], dim=1)


def same(model, other, pixels=None, **options):
    pixels = images() if pixels is None else pixels
    with torch.inference_mode():
        expected = other(pixel_values=pixels, decoder_input_ids=tokens(), **options).logits
        found = model.eval()(tokens(), pixels)
    assert expected.std() > 0.05
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


def generated(model, pixels, end, **options):
    """The tokens of each text, its end among them."""
    special = {"decoder_start_token_id": 2, "eos_token_id": end, "pad_token_id": 1}
    found = model.generate(pixels, do_sample=False, max_new_tokens=11, **special, **options)[:, 1:].tolist()
    return [row[: row.index(end) + 1] if end in row else row for row in found]


# -- the same function


@pytest.mark.parametrize("variant", VARIANTS)
def test_logits_are_theirs(variant, tmp_path):
    changes, own = VARIANTS[variant]
    other, model = written(tmp_path, **changes), ours(**own)
    report = load(model, str(tmp_path), partial=False)
    assert report.form == "TrOCR"
    assert report.counts()["initialised anew"] == 0
    left = {entry.tensor for entry in report.entries if entry.status == "left over"}
    assert left <= {
        "encoder.pre_logits.fc.weight",
        "encoder.pre_logits.fc.bias",
    }  # their pooler, which reads for nobody
    same(model, other)


@pytest.mark.parametrize("variant", ["base", *(pytest.param(name, marks=SLOW) for name in list(VARIANTS)[1:])])
def test_texts_are_theirs(variant, tmp_path):
    changes, own = VARIANTS[variant]
    other, model = written(tmp_path, **changes), ours(**own)
    load(model, str(tmp_path), partial=False)
    pixels = torch.randn(8, 3, 32, 32, generator=torch.Generator().manual_seed(7))
    pixels *= torch.arange(1, 9)[:, None, None, None]
    ends = {2, generated(other, pixels, 2)[0][-1]}  # a token that most texts have, at different places
    for end, width in itertools.product(ends, (None, 1, 3)):
        beam = {"num_beams": width, "length_penalty": 0.0} if width else {}
        way = BeamSearch(max_length=11, width=width, length_penalty=0.0) if width else Greedy(max_length=11)
        texts = way(model.begin_text(pixels), SpecialTokens(begin=2, end=end, padding=1))
        found = [row[there].tolist() for row, there in zip(texts.tokens, texts.present, strict=True)]
        assert found == generated(other, pixels, end, **beam)
        if variant == "base" and end != 2:
            assert len({len(text) for text in found}) > 1


@pytest.mark.parametrize("size", [32, 48])
def test_a_distilled_encoder_at_its_size_and_at_another(size, tmp_path):
    other = written(tmp_path, kind="deit")
    model = ours(DistilledVisionTransformer, encoder={"image_size": size})
    load(model, str(tmp_path), partial=False)
    same(model, other, images(size), interpolate_pos_encoding=size != 32)


def test_an_encoder_that_would_pool_by_the_mean(tmp_path):
    """Its norm stands behind the pooling, and here on each token."""
    other, model = written(tmp_path), ours(encoder={"pool": "mean"})
    load(model, str(tmp_path), partial=False)
    same(model, other)


def test_biases_that_the_encoder_has_not(tmp_path):
    """As in the published ones."""
    other, model = written(tmp_path, qkv_bias=False), ours()
    load(model, str(tmp_path), partial=False)
    same(model, other)


def test_the_published_decoders_size_has_their_number_of_parameters():
    """The base one; two rows of their learned places are never used."""
    published = {"d_model": 1024, "cross_attention_hidden_size": 768, "is_decoder": True}
    with torch.device("meta"):
        other = transformers.TrOCRForCausalLM(transformers.TrOCRConfig(**published))
        sizes = {"vocab_size": 50_265, "max_length": 512, "embed_dim": 1024, "memory_dim": 768, "mlp_dim": 4096}
        model = Decoder(**OPTIONS | OURS | sizes | {"depth": 12, "num_heads": 16})
    count = sum(p.numel() for p in model.parameters())
    assert count == sum(p.numel() for p in other.parameters()) - 2 * 1024 == 247_266_304


# -- what is another one


def restated(folder, part, **changes):
    config = json.loads((folder / "config.json").read_text())
    config[part] |= changes
    (folder / "config.json").write_text(json.dumps(config))


@pytest.mark.parametrize(
    ("part", "changes", "sentence"),
    [
        ("decoder", {"decoder_attention_heads": 2}, r"computes with decoder\.num_heads 2, but the model with 4; set"),
        ("decoder", {"activation_function": "relu"}, r"decoder\.mlp relu, but the model with gelu; set model\.decoder"),
        ("decoder", {"activation_function": "tanh"}, r"decoder\.mlp tanh, but the .* is one of gelu, .*: take other"),
        (
            "decoder",
            {"scale_embedding": True},
            r"decoder\.scale_embedding true, but the model with false",
        ),
        ("decoder", {"layernorm_embedding": False}, r"decoder\.embed_norm false, but the model with true"),
        (
            "decoder",
            {"model_type": "bart"},
            "the decoder of .* is of kind 'bart', which is not known .* kinds are trocr$",
        ),
        (
            "encoder",
            {"model_type": "swin"},
            "the encoder of .* is of kind 'swin', which is not known .* kinds are vit, deit$",
        ),
        ("encoder", {"num_attention_heads": 4}, r"computes with encoder\.num_heads 4, but the model with 2"),
        ("encoder", {"hidden_act": "relu"}, r"computes with encoder\.mlp relu"),
        ("encoder", {"layer_norm_eps": 1e-3}, r"computes with encoder\.norm_eps 0\.001"),
    ],
)
def test_a_field_that_changes_the_function_is_noticed(part, changes, sentence, theirs_written):
    restated(theirs_written, part, **changes)
    model = ours()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with pytest.raises(CheckpointError, match=sentence):
        load(model, str(theirs_written), partial=False)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


@pytest.mark.parametrize(
    ("own", "sentence"),
    [
        ({"causal": False}, r"computes with decoder\.causal true, but the model with false"),
        ({"scaled_attention": False}, r"computes with decoder\.scaled_attention true"),
        ({"norm_first": True}, r"computes with decoder\.norm_first false"),
        ({"norm": "rms_norm"}, r"computes with decoder\.norm layer_norm, but the model with rms_norm"),
        ({"position": "rotary_1d"}, r"computes with decoder\.position learned_1d, but the model with rotary_1d; set"),
        ({"max_length": 21}, r"decoder\.embed\.position\.pos_embed is 20x32 in it and 21x32 in the model"),
        ({"vocab_size": 24}, r"decoder\.embed\.tokens\.weight is 23x32 in it and 24x32 in the model"),
        ({"depth": 3}, r"decoder\.blocks\.2.* is not in it"),
    ],
)
def test_a_model_that_is_another_is_refused(own, sentence, theirs_written):
    with pytest.raises(CheckpointError, match=sentence):
        load(ours(**own), str(theirs_written), partial=False)


@pytest.fixture
def theirs_written(tmp_path):
    written(tmp_path)
    return tmp_path


def test_a_head_that_is_said_to_be_tied_and_is_not_is_refused(tmp_path):
    written(tmp_path, tie_word_embeddings=False)
    restated(tmp_path, "decoder", tie_word_embeddings=True)
    with pytest.raises(CheckpointError, match="says that its decoder scores by its embeddings, but holds other"):
        load(ours(tied=False), str(tmp_path), partial=False)
    restated(tmp_path, "decoder", tie_word_embeddings=False)
    with pytest.raises(CheckpointError, match="are one tensor in the model, and two in it"):
        load(ours(tied=True), str(tmp_path), partial=False)


def test_sines_that_give_the_first_token_no_place_are_refused(tmp_path):
    written(tmp_path, use_learned_position_embeddings=False)
    restated(tmp_path, "decoder", decoder_start_token_id=1)
    with pytest.raises(CheckpointError, match="begins texts with its padding token, which has no position embedding"):
        load(ours(position="sincos_1d"), str(tmp_path), partial=False)


def test_for_another_vocabulary_the_rest_is_taken_when_that_is_asked_for(theirs_written):
    model = ours(vocab_size=24)
    rows = model.decoder.embed.tokens.weight.clone()
    report = load(model, str(theirs_written), partial=True)
    anew = {entry.tensor for entry in report.entries if entry.status == "initialised anew"}
    assert anew == {"decoder.embed.tokens.weight", "decoder.head.weight"}
    assert torch.equal(model.decoder.embed.tokens.weight, rows)


# -- runs of ours


@pytest.fixture
def run_of(tmp_path, monkeypatch):
    """A model as a checkpoint, as far as weights are read from it; returns its path."""

    def saved(model):
        monkeypatch.setattr(own_run, "read_checkpoint", lambda path: checkpoint(model))
        (tmp_path / "best.ckpt").touch()
        return str(tmp_path / "best.ckpt")

    return saved


def checkpoint(model):
    options = {key: OPTIONS.get(key) for key in ("norm", "norm_eps", "norm_first", "scaled_attention")}
    options |= {"num_heads": 4, "position": "learned_1d", "scale_embedding": False, "embed_norm": True, "causal": True}
    reader = {"num_heads": 2, "norm": "layer_norm", "norm_eps": 1e-12, "mlp": "gelu", "position": "learned_1d"}
    config = {"model": {"encoder": reader | {"image_size": 32, "patch_size": 4}, "decoder": options | {"mlp": "gelu"}}}
    state = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    return {"state_dict": state, "run": {"config": config}}


def test_a_captioner_of_an_earlier_run(run_of):
    first, larger = ours(), ours(encoder={"image_size": 48})
    path = run_of(first)
    load(again := randomized(ours(), seed=9), path, partial=False)
    assert all(torch.equal(tensor, first.state_dict()[name]) for name, tensor in again.state_dict().items())
    report = load(larger, path, partial=False)
    assert report.counts()["resized"] == 1
    with pytest.raises(CheckpointError, match=r"computes with decoder\.num_heads 4, but the model with 2"):
        load(ours(num_heads=2), path, partial=False)


def test_its_encoder_goes_on_as_a_classifier(run_of):
    first = ours()
    path = run_of(first)
    sizes = {"in_chans": 3, "mlp_ratio": None, "mlp_dim": 64, "norm_eps": 1e-12}
    model = VisionTransformer(**vit_options(**sizes))
    report = load(model, path, partial=False)
    assert report.counts()["initialised anew"] == 2  # the head
    assert torch.equal(model.forward_features(images()), first.encoder.forward_features(images()))


# -- the tokenizer


def of_roberta(folder):
    """A small one in the files that TrOCR's folders have, and in transformers' own hands."""
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    words = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=words, initial_alphabet=alphabet, show_progress=False)
    trained.train_from_iterator(["a line of text, and another line of text"], trainer)
    trained.model.save(str(folder))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "RobertaTokenizer"}))
    state = json.loads(trained.to_str())["model"]
    merges = [tuple(merge) for merge in state["merges"]]
    return transformers.RobertaTokenizer(vocab=state["vocab"], merges=merges)


@pytest.mark.parametrize("files", ["tokenizer.json", "vocab.json and merges.txt"])
def test_the_tokenizer_is_theirs(files, theirs_written):
    other = of_roberta(theirs_written)
    if files == "tokenizer.json":
        (theirs_written / "vocab.json").unlink()
        other.save_pretrained(theirs_written)
    vocabulary = read_tokenizer(str(theirs_written))
    assert vocabulary.special == SpecialTokens(begin=2, end=2, padding=1)
    for text in ("a line of text", "another  Line, né 12", ""):
        tokens = vocabulary.encode(text)
        assert tokens == other(text).input_ids[1:]
        assert vocabulary.decode(tokens) == text == other.decode(tokens, skip_special_tokens=True)
    assert restore_vocabulary(vocabulary.state()) == vocabulary


def test_a_folder_without_a_tokenizer_is_refused_in_one_sentence(theirs_written):
    with pytest.raises(CheckpointError, match=r"^.* has no tokenizer\.json; write one there: transformers\.AutoTok"):
        read_tokenizer(str(theirs_written))
    of_roberta(theirs_written)
    (theirs_written / "generation_config.json").write_text(json.dumps({"eos_token_id": [2, 3]}))
    with pytest.raises(CheckpointError, match=r"gives eos_token_id as \[2, 3\], not as one token's number"):
        read_tokenizer(str(theirs_written))
    (theirs_written / "generation_config.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"generation_config\.json is damaged"):
        read_tokenizer(str(theirs_written))
    (theirs_written / "generation_config.json").unlink()
    (theirs_written / "merges.txt").write_text("no merges")
    with pytest.raises(CheckpointError, match="cannot be read as a tokenizer"):
        read_tokenizer(str(theirs_written))


def test_the_files_of_the_hub_are_fetched(theirs_written, monkeypatch):
    of_roberta(theirs_written)
    asked = []

    def fetch(repository, names, revision):
        asked.append((repository, names[0], revision))
        if not (theirs_written / names[0]).is_file():
            raise CheckpointError("it has none")
        return theirs_written / names[0]

    monkeypatch.setattr(hub, "fetch", fetch)
    expected = read_tokenizer(str(theirs_written / "model.safetensors"))
    assert read_tokenizer("hf:some/one@main") == expected
    assert {"config.json", "vocab.json", "merges.txt", "tokenizer.json"} <= {name for _, name, _ in asked}
    assert {(repository, revision) for repository, _, revision in asked} == {("some/one", "main")}
