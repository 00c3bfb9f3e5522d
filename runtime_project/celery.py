"""The Celery application: one queue of slices, early acknowledgement, no results.

A message is a hint that a task may be due; the durable message is the task's row
(docs/decisions/celery-acks-early.md). Settings are in settings.py under the prefix CELERY_.
"""

import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "runtime_project.settings")

app = Celery("runtime_project")
app.config_from_object("django.conf:settings", namespace="CELERY")
# Celery's Django fix-up closes the connection around every job; through the settings namespace
# this knob is ignored, so it is given to the configuration itself.
app.add_defaults(lambda: {"CELERY_DB_REUSE_MAX": 10**9})
app.set_default()
app.autodiscover_tasks(["tasks_app"], related_name="jobs")
