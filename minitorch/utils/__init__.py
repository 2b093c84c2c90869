"""Where PyTorch programs look for the data tools: `minitorch.utils.data`."""
