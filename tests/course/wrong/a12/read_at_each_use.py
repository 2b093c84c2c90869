"""a12.4 in fast_ops/fused.py: an element is read once for each step that takes it."""

RIGHT = """                read.add(f"x{~a} = x{~a}s[i]")"""
WRONG = """                loop.append(f"x{~a} = x{~a}s[i]")"""
