"""Mounts every door: REST, streams, pages, admin, OAuth, health."""

from django.contrib import admin
from django.urls import include, path

from runtime_project import health
from tasks_app.api import stream

urlpatterns = [
    path("livez", health.livez, name="livez"),
    path("readyz", health.readyz, name="readyz"),
    path("runtime/", include("tasks_app.api.urls")),
    path("api/", include("tasks_app.api.langgraph.urls")),
    path("stream/", include((stream.page_urls, "stream"))),
    path("admin/", admin.site.urls),
    path("", include("tasks_app.oauth.urls")),
    path("", include("tasks_app.dashboard.urls")),
]
