"""Rules of the ledger in plain Python: canonical form, effect states, redaction, errors."""
