"""States of models that are dealt out over ranks, and checkpoints of them.

With this package ranks save together what each of them has (`save`), and any number of
ranks goes on from there (`load`), or one process (`open_state`); `state_dict` knows the
states of models and of optimizers.
"""

from minitorch.distributed.checkpoint.storage import (
    StoredTensor,
    check,
    load,
    open_state,
    save,
    together,
    whole,
)
from minitorch.distributed.group import CheckpointException
