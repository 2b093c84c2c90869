"""What every task allows, as lists: all that is not here needs another reason.

With this file one can look up what a student may use of Python, NumPy, Numba and the
library in every task: `SYNTAX`, `BUILTINS`, `MODULES`, `VALUES`, `TENSORS`, and what
belongs to them. The other reasons stand in `policy.py`. NumPy's arrays and numbers are
here, its algorithms are not, and nothing that evaluates a text. What one assignment
allows beside this, as `numpy.stack`, stands in its `assignment.toml` (`allows`).
"""

from __future__ import annotations

from collections.abc import Mapping

# All but: async, global, class patterns, type parameters. `@` is only for tensors.
SYNTAX = frozenset(
    """
    Module Expr Pass Return Delete Assign AugAssign AnnAssign For While If With Raise
    Try Assert Import ImportFrom Nonlocal Break Continue FunctionDef ClassDef BoolOp
    NamedExpr BinOp UnaryOp Lambda IfExp Dict Set ListComp SetComp DictComp
    GeneratorExp Yield YieldFrom Compare Call FormattedValue JoinedStr Constant
    Attribute Subscript Starred Name List Tuple Slice comprehension ExceptHandler
    arguments arg keyword alias withitem Match match_case MatchValue MatchSingleton
    MatchSequence MatchStar MatchAs MatchOr And Or Add Sub Mult Div Mod Pow LShift
    RShift BitOr BitXor BitAnd FloorDiv Invert Not UAdd USub Eq NotEq Lt LtE Gt GtE Is
    IsNot In NotIn
    """.split()
)
ANNOTATION = frozenset(
    "Name Attribute Subscript Constant BinOp BitOr Tuple List Starred arg".split()
)
TENSOR_SYNTAX = frozenset({"MatMult", "elements at once"})

BUILTINS = frozenset(
    """
    abs all any ascii bin bool bytearray bytes callable chr complex dict divmod
    enumerate filter float frozenset hasattr hash hex id int isinstance issubclass iter
    len list map max min next object oct ord pow print range repr reversed round set
    slice sorted str sum tuple zip type() super() property staticmethod classmethod
    NotImplemented Ellipsis
    __name__ BaseException Exception ArithmeticError AssertionError AttributeError
    FloatingPointError IndexError KeyError LookupError NotImplementedError
    OverflowError RecursionError RuntimeError StopIteration TypeError ValueError
    ZeroDivisionError Warning DeprecationWarning RuntimeWarning UserWarning
    """.split()
)

# What makes new tensors, of nothing that a task asks for.
CREATION = "empty empty_like full full_like ones ones_like zeros zeros_like"
# Only in files without kernels: a tensor's arithmetic would do a kernel's work.
TENSOR_MODULES = "minitorch", "minitorch.creation"
# The members of modules. Without NumPy's products, sums and searches, and without what
# evaluates a text or leads to other modules.
MODULES: Mapping[str, frozenset[str]] = {
    name: frozenset(members.split())
    for name, members in {
        "__future__": "annotations",
        "abc": "ABC abstractmethod",
        "collections": "abc Counter defaultdict deque namedtuple OrderedDict",
        "collections.abc": """Callable Collection Generator Hashable Iterable Iterator
            Mapping MutableMapping MutableSequence Sequence Set""",
        "dataclasses": "dataclass field replace",
        "enum": "Enum IntEnum auto unique",
        "functools": "cache lru_cache partial reduce wraps",
        "heapq": "heapify heappop heappush heappushpop heapreplace",
        "itertools": """accumulate chain combinations count cycle islice pairwise
            permutations product repeat starmap takewhile dropwhile zip_longest""",
        "math": """acos acosh asin asinh atan atan2 atanh cbrt ceil comb copysign cos
            cosh degrees e erf erfc exp exp2 expm1 fabs factorial floor fmod frexp
            fsum gamma gcd hypot inf isclose isfinite isinf isnan isqrt lcm ldexp
            lgamma log log10 log1p log2 modf nan nextafter perm pi pow prod radians
            remainder sin sinh sqrt tan tanh tau trunc ulp""",
        "numbers": "Complex Integral Number Rational Real",
        "operator": """abs add and_ eq floordiv ge gt itemgetter le lt mod mul ne neg
            not_ or_ pow sub truediv""",
        "re": """A ASCII I IGNORECASE M MULTILINE X VERBOSE Match Pattern compile
            escape findall finditer fullmatch match search split sub subn""",
        "typing": """Annotated Any Callable ClassVar Final Generic Iterable Iterator
            Literal Mapping NamedTuple NoReturn Optional Protocol Sequence
            TYPE_CHECKING TypeAlias TypeVar Union cast final overload Dict List Set
            Tuple Type""",
        "unicodedata": "category combining normalize",
        "minitorch.todo": "todo",
        # What the library has to help, and no solution of any task.
        "minitorch": CREATION,
        "minitorch.creation": CREATION,
        "minitorch.autodiff": "enable_grad is_grad_enabled no_grad",
        "minitorch.tensor_data": """Shape Strides TensorData iter_positions
            lies_row_by_row normalize_dim numel without""",
        "minitorch.backend.fusion": "Program Step",
        "minitorch.distributed.collectives": "irecv isend recv send",
        "minitorch.distributed.rules": "ReduceOp",
        "minitorch.distributed.setup": "get_process_group_ranks get_rank",
        "minitorch.simple_ops.conv": "out_size taps",
        "fast_ops.attention": "_clear",
        "fast_ops.launch": "device_function kernel",
        "fast_ops.memory": "at place position",
        "cuda_ops.block.intrinsics": "device is_aligned load load4 store store4",
        "cuda_ops.memory": "place position",
        "cuda_ops.runtime.launch": "ceil_div",
        "numpy": """abs arange array asarray ascontiguousarray bool_ ceil dtype e
            empty empty_like errstate exp expm1 finfo float16 float32 float64 floating
            floor full full_like generic geomspace iinfo inexact inf int16 int32 int64
            int8 integer intp isfinite isinf isnan linspace log log1p log2 maximum
            minimum nan ndarray newaxis number ones ones_like percentile pi polyfit
            polyval quantile sign sqrt tanh typing uint16 uint32 uint64 uint8 uintp
            zeros zeros_like""",
        "numpy.finfo()": "bits dtype eps max min resolution smallest_normal tiny",
        "numpy.linalg": "",  # for assignments
        "numpy.typing": "ArrayLike DTypeLike NDArray",
        "numba": """boolean cuda float32 float64 get_num_threads get_thread_id int16
            int32 int64 int8 intp jit njit prange types uint16 uint32 uint64 uint8
            uintp void""",
        "numba.types": """boolean float32 float64 int16 int32 int64 int8 intp uint16
            uint32 uint64 uint8 uintp UniTuple Tuple""",
        "numba.cuda": """activemask all_sync any_sync atomic ballot_sync blockDim
            blockIdx brev clz eq_sync ffs fma grid gridDim gridsize jit laneid
            lanemask_lt local match_all_sync match_any_sync popc selp shared
            shfl_down_sync shfl_sync shfl_up_sync shfl_xor_sync syncthreads
            syncthreads_and syncthreads_count syncthreads_or syncwarp threadIdx
            threadfence threadfence_block threadfence_system
            warpsize""",
        "numba.cuda.atomic": """add and_ cas compare_and_swap dec exch inc max min
            nanmax nanmin or_ sub xor""",
        "numba.cuda.local": "array",
        "numba.cuda.shared": "array",
    }.items()
}
# Tests may use all of these.
TEST_MODULES = {
    "hypothesis": "assume example given note settings strategies",
    "hypothesis.strategies": """booleans data dictionaries fixed_dictionaries floats
        integers just lists none one_of permutations sampled_from sets text tuples""",
    "pytest": "approx mark raises",
    "pytest.mark": "parametrize",
}
# Modules of the library in which everything is there to be used, where the library's
# file uses them: scalar mathematics, lists, and what networks are made of.
OPEN = frozenset(
    """
    minitorch.operators minitorch.dtypes minitorch.simple_ops.lists minitorch.nn
    minitorch.nn.functional
    """.split()
)

# What is used as a decorator and nowhere else, since its arguments can be code.
COMPILERS = frozenset(
    {"numba.njit", "numba.jit", "numba.cuda.jit", "fast_ops.launch.kernel"}
)
# What is a type in an annotation or a comparison, and nowhere else: called, it makes
# objects of any numbers in memory.
ARRAYS = frozenset({"numpy.ndarray", "numpy.typing.NDArray"})
COMPILER_OPTIONS = frozenset(
    "boundscheck cache debug device error_model fastmath inline lineinfo "
    "max_registers nogil nopython opt parallel".split()
)
DECORATORS = frozenset(
    """
    builtins.staticmethod builtins.classmethod builtins.property abc.abstractmethod
    dataclasses.dataclass functools.cache functools.lru_cache
    minitorch.autodiff.no_grad typing.final typing.overload enum.unique
    fast_ops.launch.device_function cuda_ops.block.intrinsics.device
    """.split()
)
BASES = frozenset(
    """
    abc.ABC builtins.Exception builtins.ValueError builtins.object enum.Enum
    enum.IntEnum typing.Generic typing.NamedTuple typing.Protocol
    """.split()
)

# Attributes and methods that any value may have: arrays, numbers, lists, texts.
VALUES = frozenset(
    """
    shape size ndim strides dtype itemsize nbytes type kind flat T x y z copy reshape
    ravel transpose astype fill item tolist newbyteorder append extend insert pop
    remove clear index count reverse sort appendleft popleft add discard update union
    intersection difference symmetric_difference issubset issuperset isdisjoint get
    setdefault keys values items popitem most_common elements join split rsplit
    splitlines strip lstrip rstrip startswith endswith replace lower upper title find
    ljust rjust center zfill isdigit isalpha isidentifier partition rpartition encode
    decode removeprefix removesuffix is_integer bit_length as_integer_ratio real imag
    hex start stop step send close args name value rotate fromkeys from_iterable
    move_to_end extendleft maxlen default_factory difference_update
    intersection_update symmetric_difference_update
    subtract total heads kv_heads layers rank AVG SUM _asdict _replace
    findall finditer fullmatch group groups match search span end subn tobytes
    isalnum isdecimal isnumeric isspace casefold to_bytes available release __name__
    __doc__ __init__ __len__ __post_init__
    """.split()
)
# What a `TensorData` tells of itself, and its views, for files in which one reads the
# elements of tensors as lists.
VIEWS = frozenset(
    """
    dims expand is_contiguous permute positions select slice squeeze unbind unsqueeze
    """.split()
)
VIEW_FILES = ("minitorch/simple_ops/", "minitorch/tensor_data.py")
# Those of tensors, scalars and layers, for files in which one works with them.
TENSORS = frozenset(
    """
    abs all allclose any apply argmax argmin argsort backward bool broadcast_to cat
    chunk clamp clone compute_mask contiguous cos data detach device dim div double eq
    eval exp expand expand_as flatten float forward gather ge grad gt indices int
    is_contiguous is_leaf isfinite isinf isnan item le log log_softmax
    logsumexp long lt mT masked_fill matmul max mean min mm mul narrow
    ne neg new_full new_ones new_zeros
    numel parameters named_parameters modules named_modules children
    named_children permute pow prod reciprocal relu requires_grad requires_grad_
    reshape rsqrt saved_tensors saved_values save_for_backward needs_input_grad scatter
    sigmoid sign sin softmax split sqrt square squeeze stack std step sub sum t tanh to
    train training transpose tril triu trunc type unsqueeze var view where wrap zero_
    zero_grad
    add_ sub_ mul_ div_ copy_ fill_ weight bias p
    """.split()
)
METHODS = frozenset(
    """
    __abs__ __add__ __all__ __bool__ __call__ __contains__ __delitem__ __doc__
    __enter__ __eq__ __exit__ __float__ __ge__ __getitem__ __gt__ __hash__ __init__
    __int__ __iter__ __le__ __len__ __lt__ __matmul__ __mul__ __name__ __ne__ __neg__
    __next__ __post_init__ __pow__ __radd__ __repr__ __reversed__ __rmul__ __rsub__
    __rtruediv__ __setitem__ __slots__ __str__ __sub__ __truediv__
    """.split()
)
# Files in which a kernel, a loop or scalar mathematics is to be written; in others a
# student works with tensors.
KERNEL_FILES = (
    "fast_ops/",
    "cuda_ops/",
    "minitorch/simple_ops/",
    "minitorch/operators.py",
    "minitorch/scalar.py",
    "minitorch/autodiff.py",
    "minitorch/tensor_data.py",
)
