"""a12: a compiler."""
