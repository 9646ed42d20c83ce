"""Image towers that Hugging Face wrote give its features, at the size they were made for and at another."""

import json

import pytest
import timm
import torch
import transformers
from architectures import small
from foreign import images, loaded, ours, randomized, torchvision_vit
from PIL import Image

from vitlab.errors import CheckpointError, ConfigError
from vitlab.programs.export import write
from vitlab.weights.exporting import ExportedPreprocessing
from vitlab.weights.huggingface_export import export_huggingface

SHAPE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64, "patch_size": 4}
SQUARE = SHAPE | {"image_size": 32}
OURS = {"mlp_ratio": None, "mlp_dim": 64}
CLIP = OURS | {"mlp": "quick_gelu", "norm_eps": 1e-5, "pre_norm": True}
SIGLIP = OURS | {"mlp": "gelu_tanh", "class_token": False, "pool": "map"}
DINOV3 = OURS | {"norm_eps": 1e-5, "layer_scale": 1e-5, "position": "rotary_centered", "num_registers": 2}


def written(kind, config, folder):
    model = randomized(kind(config))
    model.save_pretrained(folder)
    return model


def same_features(model, folder, x, size, **changes):
    model_here, report = loaded(folder, image_size=size, **changes)
    with torch.inference_mode():
        theirs = model(**x).pooler_output
        found = model_here.eval().represent(images(size))
    assert theirs.std() > 0.05
    torch.testing.assert_close(found, theirs, atol=1e-5, rtol=1e-5)
    return report


@pytest.mark.parametrize("size", [32, 48])
@pytest.mark.parametrize("activation", ["quick_gelu", "gelu", "gelu_fast", "gelu_10", "silu"])
def test_clip(size, activation, tmp_path):
    model = written(
        transformers.CLIPVisionModel, transformers.CLIPVisionConfig(**SQUARE, hidden_act=activation), tmp_path
    )
    mlp = {"gelu_fast": "gelu_tanh"}.get(activation, activation)
    x = {"pixel_values": images(size), "interpolate_pos_encoding": size != 32}
    same_features(model, tmp_path, x, size, **(CLIP | {"mlp": mlp}))


def test_clip_with_its_projection_and_with_its_texts(tmp_path):
    config = transformers.CLIPVisionConfig(**SQUARE, projection_dim=7)
    model = written(transformers.CLIPVisionModelWithProjection, config, tmp_path / "tower")
    text = SHAPE | {"vocab_size": 10, "eos_token_id": 1, "projection_dim": 7}
    text.pop("patch_size")
    whole = transformers.CLIPConfig(text_config=text, vision_config=SQUARE, projection_dim=7)
    both = written(transformers.CLIPModel, whole, tmp_path / "both")
    with torch.inference_mode():
        for folder, expected in (
            ("tower", model(images()).image_embeds),
            ("both", both.get_image_features(images()).pooler_output),
        ):
            ours, report = loaded(tmp_path / folder, **CLIP)
            torch.testing.assert_close(ours.eval()(images()), expected, atol=1e-5, rtol=1e-5)
            assert report.counts()["initialised anew"] == 0


@pytest.mark.parametrize("size", [32, 48])
def test_openclip_beside_timms_own_loader(size, tmp_path):
    theirs = small("vit_base_patch16_clip_quickgelu_224", img_size=size)
    state, names = small("vit_base_patch16_clip_quickgelu_224").state_dict(), {}
    back = [("cls_token", "class_embedding"), ("pos_embed", "positional_embedding"), ("patch_embed.proj.", "conv1.")]
    back += [
        ("norm_pre.", "ln_pre."),
        ("blocks.", "transformer.resblocks."),
        (".norm1.", ".ln_1."),
        (".norm2.", ".ln_2."),
    ]
    back += [(".attn.qkv.", ".attn.in_proj_"), (".attn.proj.", ".attn.out_proj."), (".mlp.fc1.", ".mlp.c_fc.")]
    back += [(".mlp.fc2.", ".mlp.c_proj."), ("head.weight", "proj")]
    for name, value in state.items():
        for own, other in back:
            name = name.replace(own, other)
        value = value.T if name == "proj" else value[0] if name == "positional_embedding" else value
        names["visual." + name.replace("norm.", "ln_post.")] = value.flatten() if "class_emb" in name else value
    del names["visual.head.bias"]
    names |= {
        "logit_scale": torch.ones(()),
        "positional_embedding": torch.ones(9, 16),
        "ln_final.weight": torch.ones(16),
    }
    torch.save(names, tmp_path / "clip.pt")

    theirs.load_state_dict(timm.models.vision_transformer.checkpoint_filter_fn(names, theirs))
    ours, report = loaded(tmp_path / "clip.pt", image_size=size, **(CLIP | {"mlp_dim": 128}))
    with torch.inference_mode():
        torch.testing.assert_close(ours.eval()(images(size)), theirs.eval()(images(size)), atol=1e-5, rtol=1e-5)
    assert report.assumed == {"num_heads": 2, "mlp": "quick_gelu"}


def test_a_head_that_read_the_class_token_is_not_given_the_mean(tmp_path):
    config = transformers.CLIPVisionConfig(**SQUARE, projection_dim=7)
    written(transformers.CLIPVisionModelWithProjection, config, tmp_path / "clip")
    written(transformers.ViTForImageClassification, transformers.ViTConfig(**SQUARE, num_labels=7), tmp_path / "vit")
    torch.save(torchvision_vit().state_dict(), tmp_path / "torchvision.pth")
    for source, options in (
        ("clip", CLIP),
        ("vit", OURS | {"norm_eps": 1e-12}),
        ("torchvision.pth", {}),
    ):
        with pytest.raises(
            CheckpointError, match=r"the class token, and the model's the mean .*; set model\.pool=cls, or"
        ):
            loaded(tmp_path / source, **(options | {"pool": "mean", "fc_norm": False}))


@pytest.mark.parametrize("size", [32, 48])
def test_siglip(size, tmp_path):
    model = written(transformers.SiglipVisionModel, transformers.SiglipVisionConfig(**SQUARE), tmp_path)
    x = {"pixel_values": images(size), "interpolate_pos_encoding": size != 32}
    same_features(model, tmp_path, x, size, **SIGLIP)


@pytest.mark.parametrize("size", [32, 48])
def test_siglip_2(size, tmp_path):
    model = written(
        transformers.Siglip2VisionModel, transformers.Siglip2VisionConfig(**SHAPE, num_patches=64), tmp_path
    )
    patches = images(size).unfold(2, 4, 4).unfold(3, 4, 4).permute(0, 2, 3, 4, 5, 1).flatten(1, 2).flatten(2)
    sides = torch.tensor([[size // 4, size // 4]] * 2)
    x = {"pixel_values": patches, "pixel_attention_mask": torch.ones(patches.shape[:2]), "spatial_shapes": sides}
    same_features(model, tmp_path, x, size, **SIGLIP)


@pytest.mark.parametrize("size", [32, 48])
@pytest.mark.parametrize("gated", [False, True])
def test_dinov3(size, gated, tmp_path):
    more = {"use_gated_mlp": True, "hidden_act": "silu"} if gated else {}
    config = transformers.DINOv3ViTConfig(**SQUARE, num_register_tokens=2, **more)
    model = written(transformers.DINOv3ViTModel, config, tmp_path)
    mlp = {"mlp": "swiglu"} if gated else {}
    report = same_features(model, tmp_path, {"pixel_values": images(size)}, size, **(DINOV3 | mlp))
    notes = {entry.note for entry in report.entries}
    assert "0; the source has none" not in notes  # queries and values have biases, and keys get zeros


def test_the_pooler_of_a_vit(tmp_path):
    model = written(transformers.ViTModel, transformers.ViTConfig(**SQUARE), tmp_path)
    same_features(model, tmp_path, {"pixel_values": images()}, 32, norm_eps=1e-12, representation_dim=32, **OURS)


def test_encoders_of_pre_training(tmp_path):
    decoder = {"decoder_num_hidden_layers": 1, "decoder_hidden_size": 16, "decoder_num_attention_heads": 2}
    masked = transformers.ViTMAEConfig(**SQUARE, **decoder, decoder_intermediate_size=32, mask_ratio=0.0)
    for kind, config in (
        (transformers.ViTMAEForPreTraining, masked),
        (transformers.ViTForMaskedImageModeling, transformers.ViTConfig(**SQUARE, encoder_stride=4)),
        (transformers.ViTMSNModel, transformers.ViTMSNConfig(**SQUARE)),
    ):
        folder = tmp_path / kind.__name__
        model = written(kind, config, folder)
        encoder = getattr(model, "vit", model)
        order = {"noise": torch.arange(64.0).expand(2, -1)} if kind is transformers.ViTMAEForPreTraining else {}
        with torch.inference_mode():
            theirs = encoder(images(), **order).last_hidden_state
            ours, _ = loaded(folder, norm_eps=config.layer_norm_eps, **OURS)
            found = ours.eval().forward_features(images())
        torch.testing.assert_close(found, theirs, atol=1e-5, rtol=1e-5)


OURS_AS_TOWERS = {
    "vit and its pooler": ("ViTModel", {"representation_dim": 24}),
    "clip": ("CLIPVisionModel", CLIP),
    "clip unbiased, with scales": ("CLIPVisionModel", CLIP | {"qkv_bias": False, "layer_scale": 0.1}),
    "siglip": ("SiglipVisionModel", SIGLIP),
    "siglip of sines": ("SiglipVisionModel", SIGLIP | {"position": "sincos_2d"}),
    "dinov3": ("DINOv3ViTModel", DINOV3),
    "dinov3 gated, plain": ("DINOv3ViTModel", DINOV3 | {"mlp": "swiglu", "layer_scale": None, "num_registers": 0}),
}


@pytest.mark.parametrize("variant", OURS_AS_TOWERS)
def test_transformers_opens_them(variant, tmp_path):
    name, options = OURS_AS_TOWERS[variant]
    model = ours(**options)
    preprocessing = ExportedPreprocessing([0.5, 0.4, 0.3], [0.2, 0.2, 0.1], 37, Image.Resampling.BICUBIC)
    made = export_huggingface(model, ["a"] * 7, preprocessing)
    assert not made.has_head
    write(tmp_path, made)
    assert made.files["config.json"]["architectures"] == [name]
    theirs, loading = getattr(transformers, name).from_pretrained(tmp_path, output_loading_info=True)
    assert not any(loading.values())
    with torch.inference_mode():
        expected = model.eval().represent(images())
        torch.testing.assert_close(theirs.eval()(images()).pooler_output, expected, atol=1e-5, rtol=1e-5)
        again, _ = loaded(
            tmp_path, **(options | {"layer_scale": 1e-5 if "dinov3" in variant else None, "qkv_bias": True})
        )
        torch.testing.assert_close(again.eval().represent(images()), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (CLIP | {"pool": "mean"}, "model.pool"),
        (CLIP | {"num_registers": 2}, "model.num_registers"),
        (CLIP | {"image_size": [32, 48]}, "model.image_size"),
        (SIGLIP | {"class_token": True}, "model.class_token"),
        (DINOV3 | {"norm": "rms_norm"}, "model.norm"),
        (DINOV3 | {"pre_norm": True}, "model.pre_norm"),
    ],
)
def test_what_a_tower_has_no_words_for_is_refused(options, words):
    with pytest.raises(ConfigError, match=words):
        export_huggingface(
            ours(**options), ["a"] * 7, ExportedPreprocessing([0.5], [0.2], None, Image.Resampling.BICUBIC)
        )


FAMILIES = {
    "clip": (transformers.CLIPVisionModel, transformers.CLIPVisionConfig(**SQUARE), CLIP),
    "siglip": (transformers.SiglipVisionModel, transformers.SiglipVisionConfig(**SQUARE), SIGLIP),
    "dinov3": (
        transformers.DINOv3ViTModel,
        transformers.DINOv3ViTConfig(**SQUARE | {"num_attention_heads": 2}, num_register_tokens=2),
        DINOV3,
    ),
}
CHANGES = {"num_attention_heads": 4, "hidden_act": "relu", "layer_norm_eps": 1e-3}


@pytest.mark.parametrize(
    ("family", "key", "value"),
    [
        *[(family, key, value) for family in FAMILIES for key, value in CHANGES.items()],
        *[("dinov3", "rope_theta", 10.0), ("dinov3", "use_gated_mlp", True)],
    ],
)
def test_a_field_that_changes_the_function_is_noticed(family, key, value, tmp_path):
    kind, config, options = FAMILIES[family]
    written(kind, config, tmp_path)
    loaded(tmp_path, **options)
    stated = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(stated | {key: value}))
    with pytest.raises(CheckpointError, match="computes with"):
        loaded(tmp_path, **options)
