"""Which layout to train a model with, before a GPU is asked for.

With this package one can predict what a layout of data, tensor, pipeline and context
parallel ranks keeps in memory and how long its steps take, and search the best
(`minitorch plan` prints it). It needs no GPU and no torch.

    >>> from minitorch.distributed import planner
    >>> model, gpu = planner.models.named("llama-8b"), planner.hardware.named("h100")
    >>> layout = planner.Layout(dp=64, zero=3, micro_batch=2, micro_batches=2)
    >>> engine = planner.memory.engine("mixed", model)
    >>> one = planner.estimate(model, gpu, layout, 4096, engine)
    >>> one.fits, one.gib, one.tflops, one.tokens  # doctest: +SKIP

Model              sizes, parameters, operations         models.py
Gpu                what makers say, and collectives      hardware.py
Layout             how a model is cut                    layout.py
Engine, memory     what is kept, and for how long        memory.py
estimate           the time of a step, part by part      cost.py
Task, search       what fits, ranked, with reasons       search.py
draw               memory bars and a timeline            picture.py
calibrate          the constants, fitted and judged      calibrate.py
"""

from __future__ import annotations

from minitorch.distributed.planner import hardware, memory, models
from minitorch.distributed.planner.cost import Constants, Estimate, estimate
from minitorch.distributed.planner.hardware import Gpu
from minitorch.distributed.planner.layout import Layout
from minitorch.distributed.planner.memory import Engine
from minitorch.distributed.planner.models import Model
from minitorch.distributed.planner.search import Task, reasons, search
