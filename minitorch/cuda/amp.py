"""`minitorch.amp` by the older names, whose device is "cuda".

With this file programs that write `from torch.cuda.amp import autocast, GradScaler` run
here, too.
"""

from __future__ import annotations

from typing import Any

from minitorch.amp import GradScaler as AnyGradScaler
from minitorch.amp import autocast as any_autocast
from minitorch.dtypes import DType, float16


class autocast(any_autocast):
    """`minitorch.amp.autocast("cuda", ...)`"""

    def __init__(
        self, enabled: bool = True, dtype: DType = float16, cache_enabled: bool = True
    ) -> None:
        super().__init__("cuda", dtype, enabled, cache_enabled)


class GradScaler(AnyGradScaler):
    """`minitorch.amp.GradScaler("cuda", ...)`"""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__("cuda", *args, **options)
