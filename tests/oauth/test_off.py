"""The built-in server is optional: without its packages everything else works; half settings stop."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
# An import of the library fails, as where it is not installed.
WITHOUT = """
import importlib.util, sys
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: (
    None if name.startswith("oauth2_provider") else found(name, package))
sys.modules["oauth2_provider"] = None
"""
LOOK = """
import django
django.setup()
from django.core.management import call_command
from django.test import Client
call_command("check")
from tasks_app.mcp_server import asgi
asgi.McpDoor()
client = Client(headers={"host": "localhost"})
told = client.get("/.well-known/oauth-protected-resource/mcp")
print(told.status_code, told.json()["authorization_servers"] if told.status_code == 200 else "")
print(client.get("/o/token/").status_code)
"""


def run(code: str, **variables: str) -> subprocess.CompletedProcess[str]:
    names = {"DJANGO_SETTINGS_MODULE": "runtime_project.settings_test", **variables}
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **names}, cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_installation_without_the_library_runs() -> None:
    told = run(WITHOUT + LOOK, MCP_OAUTH="0")
    assert told.returncode == 0, told.stderr
    assert told.stdout.splitlines()[-2:] == ["404 ", "404"]


def test_issuer_outside_needs_no_library() -> None:
    outside = {"MCP_JWT_ISSUER": "https://id.example", "MCP_JWKS_URL": "https://id.example/keys"}
    told = run(WITHOUT + LOOK, MCP_OAUTH="0", **outside)
    assert told.stdout.splitlines()[-2:] == ["200 ['https://id.example']", "404"], told.stderr


@pytest.mark.parametrize(("before", "variables", "why"), [
    (WITHOUT, {"MCP_OAUTH": "1"}, "requirements/oauth.txt"),
    ("", {"MCP_JWT_ISSUER": "https://id.example"}, "MCP_JWKS_URL"),
    ("", {"MCP_RESOURCE_URL": "http://localhost/mcp/"}, "MCP_RESOURCE_URL"),
    ("", {"RUNTIME_PROFILE": "production", "MCP_OAUTH": "1",
          "MCP_RESOURCE_URL": "http://x.example/mcp"}, "https://"),
    ("", {"RUNTIME_PROFILE": "production", "MCP_OAUTH": "0", "MCP_JWT_ISSUER": "https://x.example",
          "MCP_JWKS_URL": "http://x.example/keys"}, "https://"),
])  # fmt: skip
def test_half_a_setting_stops_the_start(before: str, variables: dict[str, str], why: str) -> None:
    told = run(before + "import django\ndjango.setup()", **variables)
    assert told.returncode != 0
    assert "ImproperlyConfigured" in told.stderr
    assert why in told.stderr.splitlines()[-1]
