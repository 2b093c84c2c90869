"""How exactly float32 matrices are multiplied: `set_float32_matmul_precision`.

With this file one can let a GPU round the factors of float32 products to TF32, which
keeps 10 of the 23 bits after the point and all of the exponent. Tensor cores multiply
such numbers several times faster; sums stay float32. The relative error of a product
then grows from about 1e-7 to about 1e-3.

"highest" may take tensor cores, too, if the result is as exact as by float32 units.

A backend reads `state.allow_tf32`. The devices "simple", "cpu" and "mojo" multiply in
full float32 whatever was set, as PyTorch does on CPUs without such instructions.
"""

from __future__ import annotations

PRECISIONS = ("highest", "high", "medium")


class _State:
    """What was set last.

    Attributes:
        precision: one of `PRECISIONS`.
        allow_tf32: whether float32 factors may be rounded to TF32.
    """

    __slots__ = ("allow_tf32", "precision")

    def __init__(self) -> None:
        self.precision = "highest"
        self.allow_tf32 = False


state = _State()


def set_float32_matmul_precision(precision: str) -> None:
    """Choose how float32 matrices are multiplied, on devices that have a choice.

    Args:
        precision: "highest": all bits of each factor (the default). "high": a GPU may
            round factors to TF32. "medium": in PyTorch factors may be rounded to
            bfloat16 where there are kernels for that, and else as in "high"; there are
            none here, so it is the same as "high".

    Raises:
        ValueError: any other name.
    """
    if precision not in PRECISIONS:
        raise ValueError(
            f"set_float32_matmul_precision: got {precision!r}; expected one of "
            f"{', '.join(map(repr, PRECISIONS))}"
        )
    state.precision = precision
    state.allow_tf32 = precision != "highest"


def get_float32_matmul_precision() -> str:
    """What was set last: "highest", "high" or "medium"."""
    return state.precision
