"""minitorch: a tensor and autograd library that is a textbook you can run.

With `import minitorch as torch` a small PyTorch program runs here: tensors with
gradients on the devices "cpu" (Numba, all cores), "simple" (plain Python, the
specification) and whatever other backends are installed; `minitorch.nn`,
`minitorch.optim` and `minitorch.data` for models and their training.

`minitorch train mnist` on the command line trains a network; docs/ explains how.
"""

from contextlib import suppress
from math import e, inf, nan, pi

from minitorch import absent, cuda
from minitorch.autodiff import (
    enable_grad,
    inference_mode,
    is_grad_enabled,
    is_inference_mode_enabled,
    no_grad,
    set_grad_enabled,
)
from minitorch.backend import available_devices
from minitorch.compiler import compile
from minitorch.creation import (
    FloatTensor,
    LongTensor,
    arange,
    as_tensor,
    empty,
    empty_like,
    eye,
    from_dlpack,
    from_numpy,
    full,
    full_like,
    linspace,
    meshgrid,
    normal,
    ones,
    ones_like,
    rand,
    rand_like,
    randint,
    randint_like,
    randn,
    randn_like,
    randperm,
    tensor,
    zeros,
    zeros_like,
)
from minitorch.devices import device
from minitorch.dtypes import DType as dtype
from minitorch.dtypes import (
    bfloat16,
    finfo,
    float16,
    float32,
    float64,
    int8,
    int32,
    int64,
)
from minitorch.dtypes import bool_ as bool
from minitorch.dtypes import float16 as half
from minitorch.dtypes import float32 as float
from minitorch.dtypes import float64 as double
from minitorch.dtypes import int32 as int
from minitorch.dtypes import int64 as long
from minitorch.function import UserFunction as Function
from minitorch.functions.choice import (
    clamp,
    clip,
    masked_fill,
    maximum,
    minimum,
    where,
)
from minitorch.functions.comparison import (
    allclose,
    eq,
    equal,
    ge,
    gt,
    isclose,
    isfinite,
    isinf,
    isnan,
    le,
    logical_and,
    logical_not,
    logical_or,
    logical_xor,
    lt,
    ne,
)
from minitorch.functions.einsum import einsum
from minitorch.functions.elementwise import (
    abs,
    acos,
    add,
    ceil,
    cos,
    cosh,
    div,
    erf,
    exp,
    expm1,
    floor,
    floor_divide,
    log,
    log1p,
    log2,
    log10,
    mul,
    neg,
    pow,
    reciprocal,
    relu,
    remainder,
    round,
    rsqrt,
    sigmoid,
    sign,
    sin,
    sinh,
    sqrt,
    square,
    sub,
    tanh,
)
from minitorch.functions.indexing import (
    gather,
    index_select,
    masked_select,
    nonzero,
    repeat_interleave,
    scatter,
    scatter_add,
    select,
)
from minitorch.functions.inquiry import (
    is_floating_point,
    is_tensor,
    numel,
    result_type,
)
from minitorch.functions.matmul import (
    addmm,
    bmm,
    dot,
    matmul,
    mm,
    mv,
    outer,
)
from minitorch.functions.matrices import diag, hstack, trace, vstack
from minitorch.functions.movement import (
    broadcast_to,
    cat,
    chunk,
    clone,
    concat,
    concatenate,
    flatten,
    flip,
    movedim,
    narrow,
    permute,
    ravel,
    reshape,
    roll,
    split,
    squeeze,
    stack,
    swapaxes,
    t,
    transpose,
    tril,
    triu,
    unbind,
    unflatten,
    unsqueeze,
)
from minitorch.functions.order import (
    argmax,
    argmin,
    argsort,
    bincount,
    max,
    median,
    min,
    sort,
    topk,
    unique,
)
from minitorch.functions.random import bernoulli, multinomial
from minitorch.functions.reduce import (
    all,
    amax,
    amin,
    any,
    cumprod,
    cumsum,
    logsumexp,
    mean,
    norm,
    prod,
    std,
    sum,
    var,
)
from minitorch.functions.softmax import (
    log_softmax,
    softmax,
)
from minitorch.functions.ternary import addcdiv, addcmul, lerp
from minitorch.precision import (
    get_float32_matmul_precision,
    set_float32_matmul_precision,
)
from minitorch.random import (
    Generator,
    default_generator,
    get_rng_state,
    initial_seed,
    manual_seed,
    set_rng_state,
)
from minitorch.serialization import load, save
from minitorch.sparse import SparseCSR, sparse_csr, sparse_csr_tensor
from minitorch.tensor import Size, Tensor, grad

with suppress(ImportError):  # einops is a package of others, which few have
    from minitorch import einops_backend

__version__ = "0.1.0"

LATER = (
    "accelerator",
    "amp",
    "autograd",
    "backends",
    "distributed",
    "distributions",
    "linalg",
    "models",
    "multiprocessing",
    "nn",
    "optim",
    "profiler",
    "quantization",
    "utils",
)


def __getattr__(name: str) -> object:
    """`nn`, `optim` and other rooms, imported when first asked for."""
    if name == "autocast":
        from minitorch.amp import autocast

        return autocast
    if name not in LATER:
        raise absent.error(__name__, name)
    from importlib import import_module

    # An import statement would ask this function again while the module is being made.
    return import_module(f"minitorch.{name}")
