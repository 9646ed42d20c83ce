"""Next-token prediction: at each place of a text, which token comes next, given those before it.

B texts, M tokens of the longest, V vocab_size
"""

import torch.nn.functional as F
from torch import Tensor

from vitlab.losses.cross_entropy import check_label_smoothing


def next_token_cross_entropy(
    logits: Tensor, target: Tensor, *, padding: int, label_smoothing: float = 0.0, over_tokens: str = "mean"
) -> Tensor:
    """-Σₘ log p(targetₘ | those before it), in nats and in float32, of each text: (B, M, V), (B, M) -> (B,)

    `padding` stands in the target behind the end of a text, and costs nothing. `over_tokens` "sum" is the negative log
    probability of the whole text; "mean" divides it by the number of its tokens, so that short and long texts count
    alike. Label smoothing spreads ε over all V (Vaswani et al., 2017, arXiv:1706.03762, section 5.4). Raises ValueError
    for another word, and a smoothing outside of [0, 1).
    """
    check_label_smoothing(label_smoothing)
    if over_tokens not in ("sum", "mean"):
        raise ValueError(f"over_tokens '{over_tokens}' is not one of: sum, mean")
    loss = F.cross_entropy(
        logits.float().flatten(0, 1),
        target.flatten(),
        ignore_index=padding,
        reduction="none",
        label_smoothing=label_smoothing,
    )
    loss = loss.view_as(target).sum(dim=1)  # 0 for padding
    return loss if over_tokens == "sum" else loss / (target != padding).sum(dim=1).clamp_min(1)


def teacher_forced(target: Tensor, begin: int) -> Tensor:
    """Return the tokens that a decoder reads while it is taught: before each token of the target the right one. (B, M)
    -> (B, M), the target shifted by one, with `begin` before it."""
    return F.pad(target[:, :-1], (1, 0), value=begin)
