"""Networks: modules, their layers, losses and starting values.

With this package one can build a network as in PyTorch: `nn.Module`, `nn.Linear`,
`nn.Sequential`, `nn.CrossEntropyLoss`, and `nn.functional`, `nn.init` and `nn.utils`.
"""

from typing import TYPE_CHECKING

from minitorch import absent
from minitorch.functions.linear_cross_entropy import LinearCrossEntropyOptions
from minitorch.nn import functional, init, parallel, utils
from minitorch.nn.activation import (
    ELU,
    GELU,
    Identity,
    LeakyReLU,
    LogSoftmax,
    ReLU,
    Sigmoid,
    SiLU,
    Softmax,
    Softplus,
    Tanh,
)
from minitorch.nn.attention import MultiheadAttention
from minitorch.nn.containers import (
    ModuleDict,
    ModuleList,
    ParameterDict,
    ParameterList,
    Sequential,
)
from minitorch.nn.conv import Conv1d, Conv2d, ConvTranspose1d, ConvTranspose2d
from minitorch.nn.dropout import Dropout, Dropout2d
from minitorch.nn.embedding import Embedding, RotaryEmbedding
from minitorch.nn.experts import MixtureOfExperts
from minitorch.nn.flatten import Flatten
from minitorch.nn.lazy import (
    LazyBatchNorm1d,
    LazyBatchNorm2d,
    LazyConv1d,
    LazyConv2d,
    LazyLinear,
)
from minitorch.nn.linear import Linear
from minitorch.nn.loss import (
    BCELoss,
    BCEWithLogitsLoss,
    CrossEntropyLoss,
    HuberLoss,
    KLDivLoss,
    L1Loss,
    MSELoss,
    NLLLoss,
    SmoothL1Loss,
)
from minitorch.nn.module import Module
from minitorch.nn.norm import (
    BatchNorm1d,
    BatchNorm2d,
    GroupNorm,
    InstanceNorm1d,
    InstanceNorm2d,
    LayerNorm,
    RMSNorm,
)
from minitorch.nn.parallel import DataParallel
from minitorch.nn.parameter import Parameter
from minitorch.nn.pool import (
    AdaptiveAvgPool1d,
    AdaptiveAvgPool2d,
    AvgPool2d,
    MaxPool1d,
    MaxPool2d,
    PixelShuffle,
    Upsample,
)
from minitorch.nn.recurrent import GRU, LSTM, RNN, GRUCell, LSTMCell, RNNCell
from minitorch.nn.sparse import (
    SparseLinear,
    pack_two_of_four,
    prune_linears,
    prune_weight,
    two_of_four,
    unpack_two_of_four,
)
from minitorch.nn.transformer import (
    Transformer,
    TransformerDecoder,
    TransformerDecoderLayer,
    TransformerEncoder,
    TransformerEncoderLayer,
)

if not TYPE_CHECKING:  # for which a name that is not there stays an error
    __getattr__ = absent.explain(__name__)
