"""Ways to work together that a program chooses (`ddp_comm_hooks`)."""
