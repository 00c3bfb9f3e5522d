"""The official TypeScript client with its Tasks package, case by case."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.mcp.site import McpSite
from tests.support import node

pytestmark = [pytest.mark.crash, pytest.mark.timeout(300)]

FOLDER = Path(__file__).parent / "js"
SECONDS = 60.0


def run(site: McpSite, case: str, **more: Any) -> str:
    """Run a case of client.mjs; return what it wrote beside its verdict."""
    node.install(FOLDER)
    told = json.dumps({"urls": [site.url(), site.url(1)], "key": site.key, **more})
    answer = node.execute(FOLDER, ["client.mjs", case], seconds=SECONDS, SITE=told)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert answer.stdout.strip() == f"{case} passed"
    return answer.stderr


@pytest.mark.parametrize("case", ["answer", "cancel", "tools"])
def test_case(site: McpSite, case: str) -> None:
    """What the case checks stands beside it in client.mjs."""
    run(site, case)


def test_task_is_resumed_after_every_server_was_started_anew(site: McpSite) -> None:
    """The reference that the client keeps is enough."""
    reference = json.loads(run(site, "start").splitlines()[-1])
    site.restart_webs()
    run(site, "resume", reference=reference)
