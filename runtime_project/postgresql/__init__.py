"""Django's backend for PostgreSQL with a cheaper look at pooled connections."""
