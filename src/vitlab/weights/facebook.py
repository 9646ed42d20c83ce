"""The names of Facebook Research's own files: DeiT, DeiT III, MAE, DINO and DINOv2. They are timm's but for a few.

DINOv2 gives its registers no positions: its table has a row for the class token alone.
"""

from vitlab.weights.form import Form
from vitlab.weights.renaming import Rules, rename
from vitlab.weights.resize import Interpolation

RULES: Rules = (
    (r"^register_tokens$", "reg_token"),
    (r"^blocks\.\d+\.(\d+)\.", r"blocks.\1."),  # DINOv2 trains in chunks of blocks
    (r"\.gamma_([12])$", r".ls\1.gamma"),
    (r"\.mlp\.w12\.", ".mlp.fc1."),
    (r"\.mlp\.w3\.", ".mlp.fc2."),
)
MARKS = (
    "mask_token",
    "register_tokens",
    "decoder_",
    "blocks.0.gamma_1",
    "blocks.0.mlp.w12.",
    "blocks.0.0.",
    "head.mlp.",
)
FORM = Form(
    name="Facebook Research",
    recognises=lambda names: "patch_embed.proj.weight" in names and any(name.startswith(MARKS) for name in names),
    rename=lambda tensors: rename(tensors, RULES),
    interpolation=Interpolation(antialias=False, align_corners=False),
    extras=r"mask_token$|decoder_|(dino_head|ibot_head)\.|head\.(mlp|last_layer)\.",  # used in pre-training only
    facts={"norm_eps": 1e-6},
)
