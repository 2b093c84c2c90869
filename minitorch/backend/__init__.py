"""What a backend must offer, and how a device name finds its backend.

With this package one can get the backend of a device (`get_backend("cpu")`), list what
is installed (`available_devices`), and read, in `Backend`, every function that the
library calls. Of these a new backend brings the `Primitives`; everything else has a
default, written once in the file of its family, which it overrides where its own kernel
pays.

A backend is a subclass of `Backend`, found through the entry-point group
`minitorch.backends`, so another package can add one; it is loaded when a tensor first
asks for it. docs/add_a_backend.md walks through a whole one.
"""

from minitorch.backend.base import Backend as Backend
from minitorch.backend.primitives import Pair as Pair
from minitorch.backend.primitives import Primitives as Primitives
from minitorch.backend.registry import available_devices as available_devices
from minitorch.backend.registry import get_backend as get_backend
from minitorch.backend.registry import half_backends as half_backends
from minitorch.backend.registry import loaded_backends as loaded_backends
