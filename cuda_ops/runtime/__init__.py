"""Between Python and the driver: devices, memory, compilation, launches."""
