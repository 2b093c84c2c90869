"""a18, Serving: blocks, prefixes, tables, a scheduler, guesses."""
