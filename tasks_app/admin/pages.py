"""Importing this module registers every page with the admin site."""

from tasks_app.admin import access, execution, ledger, steering, tasks, threads, webhooks

__all__ = ["access", "execution", "ledger", "steering", "tasks", "threads", "webhooks"]
