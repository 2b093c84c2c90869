"""a0, Foundations: scalar mathematics, properties, higher-order functions, modules."""
