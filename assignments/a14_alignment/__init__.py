"""a14, Alignment: losses of answers, adapters, preferences, rewards."""
