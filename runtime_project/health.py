"""Liveness and readiness: the process answers; the database answers and sweeps happen."""

from django.db import DatabaseError, connection
from django.http import HttpRequest, JsonResponse
from django.views.decorators.http import require_GET


@require_GET
def livez(request: HttpRequest) -> JsonResponse:
    """Answer as long as the process serves requests at all."""
    return JsonResponse({"status": "ok"})


@require_GET
def readyz(request: HttpRequest) -> JsonResponse:
    """Answer 200 when the database answers and its schema is there, else 503."""
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT to_regclass('tasks_app_task') IS NOT NULL")
            row = cursor.fetchone()
    except DatabaseError:
        return JsonResponse({"status": "unavailable"}, status=503)
    ready = bool(row and row[0])
    return JsonResponse({"status": "ok" if ready else "migrating"}, status=200 if ready else 503)
