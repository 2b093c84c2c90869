"""With this package one can get data and feed it to a model.

DataLoader, default_collate            batches, shuffled, resumable, made ahead by a
                                       thread or by worker processes
Sampler, SequentialSampler,            in which order, how often, for which rank, and
RandomSampler, WeightedRandomSampler,  in which batches
SubsetRandomSampler, BatchSampler,
DistributedSampler
Dataset, TensorDataset, Subset,        what a loader reads
ConcatDataset, IterableDataset,
BatchDataset, random_split
load_digits, load_mnist, MNIST,        pictures of digits
drawn_digits
POINT_DATASETS, Points                 points in the plane, of two classes
read_idx, write_idx                    the file format of MNIST
CharTokenizer, BPE, load_tokenizer,    text to whole numbers, and back
decoded
load_text, write_tokens, open_tokens,  a text, its tokens in a file, and windows of
TokenWindows                           them for a language model
minitorch.data.cleaning                raw text becomes training data; to be imported
UrnText                                an endless text whose entropy is known
"""

from __future__ import annotations

from minitorch.data.collate import default_collate
from minitorch.data.dataset import (
    BatchDataset,
    ConcatDataset,
    Dataset,
    IterableDataset,
    Subset,
    TensorDataset,
    random_split,
)
from minitorch.data.digit_data import DigitData, load_digits
from minitorch.data.digits import drawn_digits
from minitorch.data.files import atomic_write, cache_folder
from minitorch.data.idx import IdxError, read_idx, write_idx
from minitorch.data.loader import DataLoader
from minitorch.data.mnist import (
    MNIST,
    MNISTFileError,
    MNISTUnavailable,
    load_mnist,
)
from minitorch.data.points import (
    POINT_DATASETS,
    Points,
    circle,
    diagonal,
    simple,
    spiral,
    split,
    xor,
)
from minitorch.data.sampler import (
    BatchSampler,
    DistributedSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from minitorch.data.text import (
    BPE,
    CharTokenizer,
    TextData,
    TextFileError,
    Tokenizer,
    TokenizerError,
    TokenWindows,
    decoded,
    load_text,
    load_tokenizer,
    open_tokens,
    write_tokens,
)
from minitorch.data.urns import UrnText
