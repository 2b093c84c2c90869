"""Convolutions and their gradients: tiles, directly, by Winograd; halves unfolded."""
