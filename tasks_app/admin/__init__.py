"""The admin: read-only pages of every model, and panels that act through admission.

The pages register themselves when `pages` is imported, which happens after the site exists.
"""
