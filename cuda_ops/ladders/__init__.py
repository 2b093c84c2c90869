"""One problem, several kernels, each a step faster: read and measure them in order."""
