"""a10.3 in minitorch/models/gpt.py: values are turned as well."""

RIGHT = """            both, v = heads.split((h + kv, kv), 1)
            q, k = F.rotary(both, *where.rotation).split((h, kv), 1)
"""
WRONG = """            q, k, v = F.rotary(heads, *where.rotation).split((h, kv, kv), 1)
"""
