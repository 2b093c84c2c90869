"""a14.2 in minitorch/lora.py: adapters are frozen with the rest."""

RIGHT = "p.requires_grad_(_is_adapter(name))"
WRONG = "p.requires_grad_(False)"
