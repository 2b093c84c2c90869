"""A small network that learns what a large one thinks, and not only what is right.

With this file one can train a student on a teacher's scores (`distillation_loss`). A
teacher says of a picture of a 7 that it is a 7, and a little that it might be a 1, but
no 6: that is more than the label does.

Source: Hinton, Vinyals and Dean, "Distilling the knowledge in a neural network", 2015.
"""

from __future__ import annotations

import minitorch.nn.functional as F
from minitorch.tensor import Tensor


def distillation_loss(
    student: Tensor,
    teacher: Tensor,
    target: Tensor,
    temperature: float = 4.0,
    alpha: float = 0.5,
) -> Tensor:
    """alpha T^2 KL(p || q) + (1 - alpha) cross entropy, the mean of N rows -> []

        p = softmax(teacher / T)     q = softmax(student / T)

    A temperature above 1 makes what the teacher holds for unlikely count. It makes
    slopes of KL smaller by T^2, which the factor takes back, so that both parts keep
    their shares when T changes. Nothing learns through the teacher.

    Args:
        student, teacher: [N, C], scores of C classes, before any softmax.
        target: int64 [N], the right classes.

    Errors: ValueError for scores that are not both [N, C], a temperature that is not
    above 0 and a share alpha outside of 0 to 1.
    """
    shapes = student.raw.shape, teacher.raw.shape
    if shapes[0] != shapes[1] or len(shapes[0]) != 2:
        raise ValueError(
            f"distillation_loss: the student's scores are {shapes[0]} and the "
            f"teacher's {shapes[1]}; expected both (N, C)"
        )
    if not temperature > 0 or not 0 <= alpha <= 1:
        raise ValueError(
            f"distillation_loss: temperature is {temperature} and alpha {alpha}; "
            f"expected a number above 0, and a share from 0 to 1"
        )
    # BEGIN SOLUTION a17.5
    q, p = ((a / temperature).log_softmax(1) for a in (student, teacher.detach()))
    soft = F.kl_div(q, p, reduction="batchmean", log_target=True)
    hard = F.cross_entropy(student, target)
    return alpha * temperature**2 * soft + (1 - alpha) * hard
    # END SOLUTION a17.5
