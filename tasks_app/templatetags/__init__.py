"""Template tags: how facts look. No query and no decision lives here."""
