import pytest
import torch
from tiny import randomized, vit

from vitlab.models import DistilledVisionTransformer


def distilled(**changes):
    return randomized(vit(DistilledVisionTransformer, **changes))


@pytest.mark.parametrize("changes", [{}, {"num_registers": 2}, {"fc_norm": True}, {"embed_prefix": False}], ids=str)
def test_the_logits_are_the_mean_of_both_heads(changes):
    model, images = distilled(**changes), torch.randn(4, 1, 32, 32)
    both = model.compute_both_logits(images)
    assert both.shape == (4, 2, 10)
    assert torch.equal(model(images), both.mean(dim=1))
    assert not torch.allclose(both[:, 0], both[:, 1], atol=0.1)
    tokens = (model.fc_norm if changes.get("fc_norm") else torch.nn.Identity())(model.forward_features(images))
    torch.testing.assert_close(both[:, 0], model.head(tokens[:, 0]))
    torch.testing.assert_close(both[:, 1], model.head_dist(tokens[:, 1]))


def test_the_token_stands_between_class_token_and_registers():
    model = distilled(num_registers=2)
    assert model.num_prefix_tokens == 4
    assert torch.equal(model.prefix(), torch.cat([model.cls_token, model.dist_token, model.reg_token], dim=1))
    assert model.pos_embed.shape == (1, 4 + 64, 32)


def test_another_size_comes_with_its_grid():
    model, images = distilled(), torch.randn(2, 1, 16, 24)
    assert torch.equal(model(images, (4, 6)), model.compute_both_logits(images, (4, 6)).mean(dim=1))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pool": "mean"}, "use pool 'cls'"),
        ({"pool": "map"}, "use pool 'cls'"),
        ({"class_token": False}, "pool 'cls' needs class_token=true"),
        ({"representation_dim": 32}, "a distilled model cannot have a representation_dim; set it to null"),
    ],
)
def test_what_does_not_go_with_it_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        vit(DistilledVisionTransformer, **changes)
