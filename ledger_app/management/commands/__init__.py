"""Commands of the ledger: thin, they parse and print."""
