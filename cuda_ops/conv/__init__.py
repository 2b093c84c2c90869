"""Convolutions and their gradients: as products of tiles, directly, by Winograd."""
