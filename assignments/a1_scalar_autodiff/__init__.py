"""a1, Scalar autodiff: derivatives of expressions of numbers, and a network."""
