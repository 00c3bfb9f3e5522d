"""Read-only admin pages with acts that call admission."""
