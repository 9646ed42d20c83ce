"""The masked autoencoder, against that of transformers on the same weights, and by what hiding a patch means."""

import pytest
import torch
from conftest import groups_of, vit_options
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import VARIANTS, randomized

from vitlab.layers import hidden_patches, patchify, random_keep
from vitlab.losses import masked_reconstruction
from vitlab.models import DistilledVisionTransformer, MaskedAutoencoder, VisionTransformer, head_names, represent
from vitlab.weights import load
from vitlab.weights.huggingface import rename_tensors

DECODER = {"patch_size": 4, "decoder_dim": 24, "decoder_depth": 2, "decoder_heads": 2}
ENCODERS = {  # all but those that are refused
    name: changes
    for name, changes in VARIANTS.items()
    if not ({"stem_channels", "representation_dim"} & changes.keys() or changes.get("pool") == "map")
}


def mae(kind=VisionTransformer, decoder=None, **changes):
    torch.manual_seed(0)
    return MaskedAutoencoder(encoder=kind(**vit_options(**changes)), **(DECODER | (decoder or {})))


def patches(N=64, seed=0):
    return torch.randn(3, N, 16, generator=torch.Generator().manual_seed(seed))


def kept(N=64, ratio=0.75, seed=0):
    return random_keep(torch.rand(3, N, generator=torch.Generator().manual_seed(seed)), ratio)


# -- masking


@given(N=st.integers(2, 200), ratio=st.floats(0.01, 0.99), seed=st.integers(0, 2**32))
@settings(deadline=None)
def test_the_ratio_is_exact_and_those_with_the_least_noise_are_kept(N, ratio, seed):
    if not 0 < round(N * ratio) < N:
        return
    noise = torch.rand(3, N, generator=torch.Generator().manual_seed(seed))
    keep = random_keep(noise, ratio)
    mask = hidden_patches(keep, N)
    assert mask.sum(dim=1).tolist() == [round(N * ratio)] * 3
    for row, hidden in zip(noise, mask, strict=True):
        assert row[~hidden].max() <= row[hidden].min()


@pytest.mark.parametrize("ratio", [0.0, 1.0, -0.5, 0.001, 0.999, float("nan")])
def test_a_ratio_that_hides_or_leaves_nothing_is_refused(ratio):
    with pytest.raises(ValueError, match="mask_ratio"):
        random_keep(torch.rand(2, 64), ratio)


# -- another implementation


@pytest.fixture(scope="module")
def theirs():
    from transformers import ViTMAEConfig, ViTMAEForPreTraining

    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128}
    sizes |= {f"decoder_{name}": value // 2 for name, value in sizes.items() if name != "num_hidden_layers"}
    config = ViTMAEConfig(
        **sizes, decoder_num_hidden_layers=1, image_size=32, patch_size=8, layer_norm_eps=1e-6, norm_pix_loss=True
    )
    return randomized(ViTMAEForPreTraining(config))


def authors_names(model):
    """The state dict of transformers' model by the names of the authors' own code."""
    state = model.state_dict()
    encoder = rename_tensors({name: value for name, value in state.items() if name.startswith("vit.")})
    inner = {
        name.removeprefix("decoder.").replace("decoder_layers.", "layers."): value
        for name, value in state.items()
        if name.startswith("decoder.")
    }
    decoder = rename_tensors(inner)
    return encoder | {name.replace("blocks.", "decoder_blocks."): value for name, value in decoder.items()}


def test_it_is_that_of_transformers_and_takes_the_authors_files(theirs, tmp_path):
    sizes = {"image_size": 32, "patch_size": 8, "in_chans": 3, "position": "sincos_2d"}
    decoder = {"patch_size": 8, "decoder_dim": 16, "decoder_depth": 1, "decoder_heads": 1}
    ours = mae(decoder=decoder, **sizes).eval()
    torch.save({"model": authors_names(theirs)}, tmp_path / "mae_pretrain_full.pth")
    report = load(ours, str(tmp_path / "mae_pretrain_full.pth"), partial=False)
    assert report.counts()["copied"] == len(report.entries) - report.counts()["resized"]
    images, noise = torch.randn(3, 3, 32, 32), torch.rand(3, 16)
    with torch.inference_mode():
        expected = theirs(images, noise=noise)
        keep = random_keep(noise, 0.75)
        prediction = ours(images, keep=keep)
    mask = hidden_patches(keep, 16)
    assert torch.equal(mask, expected.mask.bool())
    logits = expected.logits.unflatten(2, (8, 8, 3)).permute(0, 1, 4, 2, 3).flatten(2)  # channels last -> first
    assert logits.std() > 0.05
    torch.testing.assert_close(prediction, logits, atol=1e-5, rtol=1e-5)
    loss = masked_reconstruction(prediction, patchify(images, 8), mask, normalize=True)
    torch.testing.assert_close(loss.mean(), expected.loss, atol=1e-5, rtol=1e-5)


# -- what is hidden


@pytest.mark.parametrize("variant", ENCODERS)
def test_hidden_patches_change_nothing_and_seen_ones_do(variant):
    model, x, keep = randomized(mae(**ENCODERS[variant])), patches(), kept()
    mask = hidden_patches(keep, 64)[..., None]
    other = torch.where(mask, patches(seed=1), x)
    with torch.inference_mode():
        prediction = model(x, keep=keep)
        torch.testing.assert_close(model(other, keep=keep), prediction, atol=0, rtol=0)
        assert not torch.allclose(model(torch.where(mask, x, patches(seed=1)), keep=keep), prediction, atol=1e-3)
    assert prediction.shape == x.shape


@pytest.mark.parametrize("variant", ENCODERS)
def test_the_order_of_what_is_seen_changes_nothing(variant):
    """Positions that act within the blocks are those of the patches, not of their places in the sequence."""
    model, x, keep = randomized(mae(**ENCODERS[variant])), patches(), kept()
    with torch.inference_mode():
        a, b = model(x, keep=keep), model(x, keep=keep.sort(dim=1).values)
    torch.testing.assert_close(a, b, atol=2e-4, rtol=1e-4)


@pytest.mark.parametrize("variant", ENCODERS)
def test_with_all_patches_kept_the_encoder_is_the_vit(variant):
    model, x = randomized(mae(**ENCODERS[variant])), patches()
    vit, shuffled = model.encoder, torch.stack([torch.randperm(64) for _ in range(3)])
    with torch.inference_mode():
        latent, grid, _ = model.encode(x, None, shuffled)
        whole = vit.fc_norm(vit.forward_features(x))[:, vit.num_prefix_tokens :]
    assert grid == (8, 8)
    taken = torch.stack([whole[b, shuffled[b]] for b in range(3)])
    torch.testing.assert_close(latent[:, vit.num_prefix_tokens :], taken, atol=2e-4, rtol=1e-4)


def test_images_are_patches_and_other_grids_are_taken():
    model, keep = randomized(mae()), kept()
    images = torch.randn(3, 1, 32, 32)
    with torch.inference_mode():
        torch.testing.assert_close(model(images, keep=keep), model(patchify(images, 4), keep=keep))
        assert model(patches(24), (4, 6), kept(24)).shape == (3, 24, 16)


# -- parameters


@pytest.mark.parametrize("variant", ENCODERS)
def test_every_parameter_learns_and_is_in_one_group(variant):
    model = randomized(mae(**ENCODERS[variant])).train()
    x, keep = patches(), kept()
    masked_reconstruction(model(x, keep=keep), x, hidden_patches(keep, 64), normalize=True).mean().backward()
    without = {name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()}
    assert not without
    groups = groups_of(model, lr=1.0, weight_decay=0.1, layer_decay=0.5)
    assert sum(len(group["params"]) for group in groups) == len(list(model.parameters()))
    for group in groups:
        for name in group["names"]:
            inner = name.removeprefix("encoder.")
            exempt = inner in model.encoder.no_weight_decay() if inner != name else name in OWN_EXEMPT(model)
            assert group["weight_decay"] == (0.0 if exempt else 0.1), name
            layer = model.encoder.get_layer_id(inner) if inner != name else 3
            assert group["lr"] == 0.5 ** (3 - layer), name


def OWN_EXEMPT(model):  # noqa: N802
    return {"mask_token", *(name for name, p in model.named_parameters() if p.ndim == 1)}


def test_first_weights_overwrite_all_of_the_decoder():
    model = mae()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(float("nan"))
    model.encoder.head = torch.nn.Linear(32, 1)
    model.encoder.initialize()
    model.initialize()
    assert all(parameter.isfinite().all() for parameter in model.parameters())


@pytest.mark.parametrize("changes", [{}, {"pool": "mean"}])
def test_its_representation_is_the_encoders(changes):
    model, images = randomized(mae(**changes)), torch.randn(2, 1, 32, 32)
    vit = randomized(VisionTransformer(**vit_options(**changes)))
    vit.load_state_dict(model.encoder.state_dict(), strict=False)
    torch.testing.assert_close(represent(model, images), represent(vit, images))
    assert head_names(model) == set()
    with pytest.raises(ValueError, match="'head' needs a model with a head"):
        groups_of(model, lr=1.0, weight_decay=0.0, trained="head")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"patch_size": None, "stem_channels": [8, 12]}, "encoder.stem_channels"),
        ({"pool": "map"}, "encoder.pool 'map'"),
        ({"representation_dim": 24}, "encoder.representation_dim"),
        ({"kind": DistilledVisionTransformer}, "more than one head"),
        ({"patch_size": 8}, "patch_size is 4, but the encoder's is 8"),
        ({"decoder": {"decoder_dim": 30}}, "decoder_dim 30"),
        ({"decoder": {"decoder_heads": 5}}, "decoder_heads 5"),
    ],
)
def test_what_it_cannot_be_is_refused(changes, words):
    with pytest.raises(ValueError, match=words):
        mae(**changes)


def test_an_encoder_that_is_no_vit_is_refused():
    with pytest.raises(ValueError, match="encoder is a Linear"):
        MaskedAutoencoder(encoder=torch.nn.Linear(2, 2), **DECODER)


def test_it_runs_in_bfloat16():
    model, x, keep = mae(), patches(), kept()
    with torch.autocast("cpu", torch.bfloat16):
        rounded = model(x, keep=keep)
    torch.testing.assert_close(rounded.float(), model(x, keep=keep), atol=0.05, rtol=0.05)


@pytest.mark.slow
def test_it_learns_what_hidden_patches_look_like():
    """Images that grow brighter in one direction, another for each: what is seen tells all. To predict the means of
    patches would cost 1."""
    model, generator = mae(image_size=16, position="sincos_2d"), torch.Generator().manual_seed(0)
    axis = torch.linspace(-1, 1, 16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    losses = []
    for _ in range(130):
        along, down = torch.randn(2, 64, 1, 1, 1, generator=generator)
        x = patchify(along * axis + down * axis[:, None], 4)
        keep = random_keep(torch.rand(64, 16, generator=generator), 0.5)
        loss = masked_reconstruction(model(x, keep=keep), x, hidden_patches(keep, 16), normalize=True).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[0] > 0.85
    assert sum(losses[-10:]) / 10 < 0.2, losses[-10:]
