"""Routes of the pages."""

from django.urls import path

from tasks_app.dashboard import account

app_name = "dashboard"
urlpatterns = [
    path("login/", account.sign_in, name="login"),
    path("logout/", account.sign_out, name="logout"),
    path("tenant/", account.set_tenant, name="tenant"),
    path("theme/", account.set_theme, name="theme"),
]
