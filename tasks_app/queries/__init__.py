"""Every read that leaves the app: frozen dataclasses, scoped to who asks."""
