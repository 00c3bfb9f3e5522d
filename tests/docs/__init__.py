"""Code in documents runs."""
