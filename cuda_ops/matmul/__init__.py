"""Matrix products: which kernel for which shapes, and the fastest rungs."""
