import torch
from conftest import vit_options

from vitlab.models import VisionTransformer, record_attention


def test_the_weights_of_each_layer_are_moved_as_they_are_noted():
    model, places = VisionTransformer(**vit_options(depth=2)), []
    with record_attention(model.blocks, device="meta") as found:
        model.blocks[1].register_forward_pre_hook(lambda *_: places.extend(one.device.type for one in found.values()))
        model(torch.randn(1, 1, 32, 32))
    assert places == ["meta"]
    assert len(found) == 2
