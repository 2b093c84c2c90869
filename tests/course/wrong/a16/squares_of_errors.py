"""a16.4 in minitorch/scaling.py: squares, which believe runs that went wrong."""

RIGHT = 'F.huber_loss(found, log_loss, reduction="sum", delta=delta)'
WRONG = 'F.mse_loss(found, log_loss, reduction="sum") / 2'
