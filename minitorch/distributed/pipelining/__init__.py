"""Networks in stages, through which micro-batches go one behind the other.

gpipe, one_f_one_b, interleaved     who does what when: tables     schedules.py
table, draw, bubble, peak           what such a table costs
PipelineStage, Pipeline             does what a table says         stage.py
"""

from minitorch.distributed.pipelining.schedules import (
    Action,
    Schedule,
    bubble,
    check,
    chunks_of,
    draw,
    gpipe,
    interleaved,
    one_f_one_b,
    peak,
    table,
    timeline,
    waiting,
)
from minitorch.distributed.pipelining.stage import Pipeline, PipelineStage
