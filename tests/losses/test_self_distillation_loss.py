"""DINO's loss is that of its authors' algorithm, as lightly has it."""

import pytest
import torch
from lightly.loss import DINOLoss

from vitlab.losses import self_distillation, teacher_targets


@pytest.mark.parametrize(("num_large", "num_small"), [(2, 0), (2, 8), (1, 3)])
def test_it_is_lightlys_with_its_centre_over_several_steps(num_large, num_small):
    settings = {"warmup_teacher_temp": 0.04, "teacher_temp": 0.04, "warmup_teacher_temp_epochs": 0}
    theirs = DINOLoss(output_dim=16, student_temp=0.1, center_momentum=0.9, **settings)
    generator, center = torch.Generator().manual_seed(0), torch.zeros(16)
    for _ in range(4):
        teacher = torch.randn(num_large, 5, 16, generator=generator) / 2
        student = torch.randn(num_large + num_small, 5, 16, generator=generator) / 2
        ours = self_distillation(list(student), list(teacher_targets(teacher, center, 0.04)), 0.1)
        center.lerp_(teacher.mean(dim=(0, 1)), 0.1)
        assert ours.shape == (5,)
        torch.testing.assert_close(ours.mean(), theirs(list(teacher), list(student), epoch=0))


def test_one_view_is_compared_with_itself():
    logits = torch.randn(3, 7, generator=torch.Generator().manual_seed(1))
    targets = teacher_targets(logits, torch.zeros(7), 1.0)
    entropy = torch.special.entr(targets).sum(dim=1)
    torch.testing.assert_close(self_distillation([logits], [targets], 1.0), entropy)
