"""How the learning rate changes during a run: up quickly, then slowly down to 0.

With this file one can make the factor that `LambdaLR` multiplies the learning rate by:
`one_cycle`, `warm_up_cosine`, which ends at a least one, as for GPTs, or `constant` for
an optimizer that needs no schedule.
"""

from __future__ import annotations

import math
from collections.abc import Callable

WARM_UP = 0.2


def one_cycle(steps: int, warm_up: float = WARM_UP) -> Callable[[int], float]:
    """A function of the step number that rises from near 0 to 1, then falls to near 0.

    It rises in a straight line for the share `warm_up` of all steps, while Adam's
    averages fill and the first layers find their way, and falls along half a cosine.
    Large steps in the middle find a wide valley, small ones at the end its ground: so a
    run of one epoch ends as low as its length allows, and one of five epochs lower.

    Source: Smith and Topin, "Super-convergence", 2018; the cosine is from Loshchilov
    and Hutter, "SGDR", 2017.
    """
    rising = max(1, round(warm_up * steps))

    def factor(step: int) -> float:
        if step < rising:
            return (step + 1) / rising
        done = (step - rising) / max(1, steps - rising)
        return 0.5 * (1.0 + math.cos(math.pi * min(1.0, done)))

    return factor


def constant(step: int) -> float:
    """1 in every step."""
    return 1.0


def warm_up_cosine(warm_up: int, until: int, least: float) -> Callable[[int], float]:
    """A function of the step number that rises to 1, then falls to `least`.

    It rises in a straight line for `warm_up` steps, falls along half a cosine until
    step `until`, and stays there.

    Source: Radford et al., "Improving language understanding by generative
    pre-training", 2018; the numbers of steps count as nanoGPT's.
    """

    def factor(step: int) -> float:
        if step < warm_up:
            return (step + 1) / (warm_up + 1)
        done = min(1.0, (step - warm_up) / max(1, until - warm_up))
        return least + (1.0 - least) * 0.5 * (1.0 + math.cos(math.pi * done))

    return factor
