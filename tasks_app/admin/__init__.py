"""The admin: read-only pages of every model, and panels that act through admission."""

from tasks_app.admin import access, execution, ledger, steering, tasks

__all__ = ["access", "execution", "ledger", "steering", "tasks"]
