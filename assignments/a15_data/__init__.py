"""a15, Data: duplicates, near duplicates, rules, masks, a classifier of texts."""
