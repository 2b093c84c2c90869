"""`minitorch.amp` by the older names, whose device is "cuda".

With this file programs that write `from torch.cuda.amp import autocast, GradScaler` run
here, too.
"""

from __future__ import annotations

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

    def __init__(
        self,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        super().__init__(
            "cuda", init_scale, growth_factor, backoff_factor, growth_interval, enabled
        )
