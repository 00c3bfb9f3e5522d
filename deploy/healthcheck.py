# ruff: noqa: INP001
# A script of the image, not a package.
"""Asks the web process of this container whether it is alive. Exit code 0 means yes.

Uses a host name that the settings allow and says HTTPS, as the proxy in front does.
"""

import os
import sys
import urllib.request

host = os.environ.get("DJANGO_ALLOWED_HOSTS", "localhost").split(",")[0].strip().lstrip(".")
request = urllib.request.Request(
    "http://127.0.0.1:8000/livez", headers={"Host": host, "X-Forwarded-Proto": "https"}
)
try:
    with urllib.request.urlopen(request, timeout=4) as answer:  # noqa: S310
        sys.exit(0 if answer.status == 200 else 1)
except OSError:
    sys.exit(1)
