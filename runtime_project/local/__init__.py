"""The local stack: embedded PostgreSQL and Redis, the supervisor, and the verbs up, down and demo.

Nothing here is used in production; deploy/ describes that. Nothing here imports tasks_app.
"""
