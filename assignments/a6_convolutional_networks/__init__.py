"""a6, Convolutional networks: windows that slide, and a network that reads digits."""
