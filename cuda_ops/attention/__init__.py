"""Attention in one kernel: scores stay on the chip, forward and backward."""
