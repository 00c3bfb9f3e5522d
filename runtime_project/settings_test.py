"""Only what tests change, each with its reason."""

import os

# A fixed key, so that test processes share sessions; it protects nothing.
os.environ.setdefault("DJANGO_SECRET_KEY", "test-only-" + "k" * 50)
os.environ.setdefault("RUNTIME_PROFILE", "test")
# The scripted workflow is what deterministic tests run.
os.environ.setdefault("RUNTIME_TEST_ASSISTANT", "1")
# A test moves leases into the past, also before the start of its server.
os.environ.setdefault("RUNTIME_OUTAGE_GRACE_SECONDS", "0")
# The built-in authorization server is installed wherever tests run.
os.environ.setdefault("MCP_OAUTH", "1")
# Type checking and linting import settings without any server.
os.environ.setdefault("DATABASE_URL", "postgresql://localhost/perdure")
os.environ.setdefault("REDIS_URL", "redis://localhost:6379/0")

from runtime_project.settings import *  # noqa: F403

# Hashing passwords for real would take most of the suite's time.
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
# Tests serve pages without a collectstatic run; browser tests switch the real storage on.
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"},
}
# There is no folder of collected files: look up a static file when it is asked for.
WHITENOISE_AUTOREFRESH = True
