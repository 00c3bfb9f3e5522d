# ruff: noqa: INP001
# A script of the image, not a package.
"""Asks the web process of this container whether it is alive. Exit code 0 means yes.

Usage: healthcheck.py [PORT], 8000 unless given.

Uses a host name that the settings allow and says HTTPS, as the proxy in front does.
"""

import os
import sys
import urllib.request

port = int(sys.argv[1]) if len(sys.argv) > 1 else 8000
host = os.environ.get("DJANGO_ALLOWED_HOSTS", "localhost").split(",")[0].strip().lstrip(".")
request = urllib.request.Request(
    f"http://127.0.0.1:{port}/livez", headers={"Host": host, "X-Forwarded-Proto": "https"}
)
try:
    with urllib.request.urlopen(request, timeout=4) as answer:  # noqa: S310
        sys.exit(0 if answer.status == 200 else 1)
except OSError:
    sys.exit(1)
