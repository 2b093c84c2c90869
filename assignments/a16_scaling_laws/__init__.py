"""a16, Scaling laws: budgets, power laws, IsoFLOPs, one law for both, a forecast."""
