"""Every read that leaves the application; frozen dataclasses out."""
