"""Automatic mixed precision: products in 16 bits, sums and weights in 32.

With this package a network in float32 trains with half types where they are enough:

    scaler = minitorch.amp.GradScaler("cuda")       # float16 alone needs it
    for x, y in batches:
        with minitorch.amp.autocast("cuda", dtype=minitorch.float16):
            loss = loss_fn(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()

The weights stay float32, so that small steps add up: beside 1 the next bfloat16 is
1.0078. bfloat16 has float32's range, and needs no scaling.

Source: Micikevicius et al., "Mixed precision training", 2018; Kalamkar et al., "A study
of bfloat16 for deep learning training", 2019.
"""

from minitorch.amp.autocast import autocast as autocast
from minitorch.amp.autocast import get_autocast_dtype as get_autocast_dtype
from minitorch.amp.autocast import is_autocast_enabled as is_autocast_enabled
from minitorch.amp.grad_scaler import GradScaler as GradScaler
