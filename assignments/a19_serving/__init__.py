"""a19, Serving: blocks, prefixes, tables, a scheduler, guesses."""
