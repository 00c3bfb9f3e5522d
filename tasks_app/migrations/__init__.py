"""Schema of tasks_app."""
