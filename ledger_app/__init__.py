"""What must stay true for ever: effects, receipts, usage and the audit chain.

Rows point at tenants, tasks and steps by plain ids; this package knows nothing of tasks_app.
"""
