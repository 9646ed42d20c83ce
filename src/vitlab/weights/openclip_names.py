"""The names of OpenAI's CLIP and of OpenCLIP: their image tower is `visual`. Files do not say which GELU they compute
with: OpenAI's the quick one, most others the exact one."""

import re

from vitlab.weights.form import Form
from vitlab.weights.renaming import Rules, Tensors, add_batch_dimension, rename

TOWER = "visual."
BLOCK: Rules = (  # of either tower
    (r"\.ln_([12])\.", r".norm\1."),
    (r"\.attn\.in_proj_", ".attn.qkv."),
    (r"\.attn\.out_proj\.", ".attn.proj."),
    (r"\.mlp\.c_fc\.", ".mlp.fc1."),
    (r"\.mlp\.c_proj\.", ".mlp.fc2."),
    (r"\.ls_([12])\.", r".ls\1."),
)
RULES: Rules = (
    (r"^class_embedding$", "cls_token"),
    (r"^positional_embedding$", "pos_embed"),
    (r"^conv1\.", "patch_embed.proj."),
    (r"^ln_pre\.", "norm_pre."),
    (r"^ln_post\.", "norm."),
    (r"^transformer\.resblocks\.(\d+)\.", r"blocks.\1."),
    (r"^proj$", "head.weight"),
    *BLOCK,
)


def rename_tensors(tensors: Tensors) -> Tensors:
    """Rename the image tower alone; its projection is a head without a bias."""
    tower = {name.removeprefix(TOWER): value for name, value in tensors.items() if name.startswith(TOWER)}
    found = add_batch_dimension(rename(tower, RULES))
    if "head.weight" in found:
        found["head.weight"] = found["head.weight"].T
    return found


FORM = Form(
    name="OpenCLIP",
    recognises=lambda names: any(re.match(r"visual\.transformer\.resblocks\.0\.", name) for name in names),
    rename=rename_tensors,
    facts={"norm": "layer_norm", "norm_eps": 1e-5, "position": "learned_1d", "pre_norm": True, "pool": "cls"},
)
