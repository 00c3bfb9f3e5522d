"""docs/tutorial/from-a-program.md holds as it stands, against real processes."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tasks_app.management.commands import seed_demo
from tests.clients.site import RunSite
from tests.support.committed import committed
from tests.support.workers import ROOT

pytestmark = pytest.mark.slow

PAGE = "docs/tutorial/from-a-program.md"
SECONDS = 120


def blocks(language: str) -> list[str]:
    found = re.findall(rf"```{language}\n(.*?)```", (ROOT / PAGE).read_text(), re.DOTALL)
    assert found
    return found


@pytest.fixture(scope="module")
def db(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    """The test database with real commits, instead of pytest-django's fixture of this name."""
    yield from committed(django_db_blocker)


@pytest.fixture(scope="module")
def site(db: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunSite]:
    """The local stack as the reader has it: processes, folders, and a file of keys."""
    home = tmp_path_factory.mktemp("reader")
    folders = {"INPUT": home / ".runtime/input", "PUBLISH": home / ".runtime/published"}
    for name, folder in folders.items():
        folder.mkdir(parents=True)
        os.environ[f"RUNTIME_{name}_ROOTS"] = str(folder)
    found = RunSite(home)
    try:
        found.found_tenant()
        keys = {role: found.key_of(role) for role in ("submitter", "approver")}
        accounts = seed_demo.Accounts(logins={"submitter": "a password"}, api_keys=keys)
        text = seed_demo._text(accounts, as_json=True)
        (home / ".runtime/credentials").write_text(text)
        found.start()
        yield found
    finally:
        found.stop()
        for name in folders:
            del os.environ[f"RUNTIME_{name}_ROOTS"]


def run(site: RunSite, command: list[str], text: str) -> str:
    """Return what a program of the reader says; it must end well."""
    keys = json.loads((site.folder / ".runtime/credentials").read_text())["api_keys"]
    env = {
        **os.environ, "PERDURE": site.web.url, "NO_PROXY": "127.0.0.1",
        "SUBMITTER": keys["submitter"], "APPROVER": keys["approver"],
    }  # fmt: skip
    said = subprocess.run(
        command, input=text, cwd=site.folder, env=env, timeout=SECONDS, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert said.returncode == 0, said.stdout + said.stderr
    return said.stdout


def published(site: RunSite) -> int:
    return len(list((site.folder / ".runtime/published").iterdir()))


def test_a_reader_gets_through(site: RunSite) -> None:
    """curl, Python, LangGraph: each starts its task, and each publication happens once."""
    shell = "\n".join(blocks("sh"))
    assert "export PERDURE=http://127.0.0.1:8000\n" in shell
    shell = shell.replace("export PERDURE=http://127.0.0.1:8000\n", "")
    said = run(site, ["/bin/sh", "-eu"], shell)
    assert published(site) == 1
    assert '"status":"completed"' in said
    assert '"state":"succeeded"' in said

    review, many, graph = blocks("python")
    said = run(site, [sys.executable, "-"], f"{review}\n\n{many}")
    assert published(site) == 2
    assert said.startswith("completed ")
    assert "would be paused" in said

    said = run(site, [sys.executable, "-"], graph)
    assert "values" in said
    assert published(site) == 2
