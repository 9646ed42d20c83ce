"""Learning from another model's predictions, its logits taken as they are: no gradient is wanted of the teacher.

B batch, K classes
"""

import torch.nn.functional as F
from torch import Tensor


def soft_distillation(student_logits: Tensor, teacher_logits: Tensor, temperature: float) -> Tensor:
    """T²·KL(teacher ‖ student), in nats, of the softmax of logits / T (Hinton et al., 2015, arXiv:1503.02531, section
    2). (B, K), (B, K) -> (B,)

    T² keeps the gradient's size whatever the temperature. Raises ValueError unless `temperature` is above 0.
    """
    if temperature <= 0:
        raise ValueError(f"temperature {temperature} is not above 0")
    student, teacher = (
        (logits.float() / temperature).log_softmax(dim=1) for logits in (student_logits, teacher_logits)
    )
    return temperature**2 * F.kl_div(student, teacher, reduction="none", log_target=True).sum(dim=1)


def hard_distillation(student_logits: Tensor, teacher_logits: Tensor) -> Tensor:
    """Cross-entropy with the class that the teacher holds to be the right one (Touvron et al., 2021, arXiv:2012.12877,
    equation 3, second term), in nats. (B, K), (B, K) -> (B,)"""
    return F.cross_entropy(student_logits.float(), teacher_logits.argmax(dim=1), reduction="none")
