"""The names of torchvision's VisionTransformer (vit_b_16 and its kin)."""

from vitlab.weights.form import Form
from vitlab.weights.renaming import Rules, rename
from vitlab.weights.resize import Interpolation

RULES: Rules = (
    (r"^class_token$", "cls_token"),
    (r"^encoder\.pos_embedding$", "pos_embed"),
    (r"^conv_proj\.", "patch_embed.proj."),
    (r"^encoder\.layers\.encoder_layer_(\d+)\.", r"blocks.\1."),
    (r"\.ln_([12])\.", r".norm\1."),
    (r"\.self_attention\.in_proj_", ".attn.qkv."),
    (r"\.self_attention\.out_proj\.", ".attn.proj."),
    (r"\.mlp\.(0|linear_1)\.", ".mlp.fc1."),
    (r"\.mlp\.(3|linear_2)\.", ".mlp.fc2."),
    (r"^encoder\.ln\.", "norm."),
    (r"^heads\.pre_logits\.", "pre_logits.fc."),
    (r"^heads\.head\.", "head."),
)
FORM = Form(
    name="torchvision",
    recognises=lambda names: "encoder.pos_embedding" in names and "conv_proj.weight" in names,
    rename=lambda tensors: rename(tensors, RULES),
    interpolation=Interpolation(antialias=False, align_corners=True),
    facts={"norm_eps": 1e-6, "mlp": "gelu", "position": "learned_1d", "pool": "cls"},
)
