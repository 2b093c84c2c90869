"""What PyTorch programs find under `torch.autograd`.

With this file `minitorch.autograd.grad(loss, parameters)`, a class that derives from
`minitorch.autograd.Function`, and `minitorch.autograd.gradcheck(fn, inputs)` work as
they do in PyTorch. Each name is defined elsewhere: the engine in
`minitorch/autodiff.py`, `Function` in `minitorch/function.py` (as `UserFunction`),
`grad` in `minitorch/tensor/hooks.py`, the checks in `minitorch/grad_check.py`.
"""

from minitorch.autodiff import enable_grad, no_grad, set_grad_enabled
from minitorch.function import UserFunction as Function
from minitorch.grad_check import GradientError, gradcheck, gradgradcheck
from minitorch.tensor import grad

__all__ = [
    "Function",
    "GradientError",
    "enable_grad",
    "grad",
    "gradcheck",
    "gradgradcheck",
    "no_grad",
    "set_grad_enabled",
]
