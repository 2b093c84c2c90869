"""a10, Language models: tokens, attention, a GPT that spells, and its cache."""
