"""a13.3 in minitorch/distributed/optim.py: owners keep what they have learned."""

RIGHT = "        give_all(sent, self.process_group)"
WRONG = "        pass"
