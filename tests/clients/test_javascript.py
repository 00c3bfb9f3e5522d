"""The acceptance of the runs contract (A1 to A9) with the JavaScript client, case by case."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.site import RunSite
from tests.support import node
from tests.support.proxy import CuttingProxy

FOLDER = Path(__file__).parent / "js"
CASE_SECONDS = 60.0


@pytest.fixture(autouse=True)
def _packages() -> None:
    node.install(FOLDER)


@pytest.fixture
def proxy(site: RunSite) -> Iterator[CuttingProxy]:
    with CuttingProxy(site.web.url) as found:
        yield found


def told(site: RunSite, **more: str) -> dict[str, str]:
    return {"url": site.url, "key": site.key, "sync": str(site.sync.folder), **more}


def run(case: str, site: dict[str, str]) -> None:
    """Run a case of cases.mjs; what it found wrong is the failure."""
    answer = node.execute(FOLDER, ["run.mjs", case], seconds=CASE_SECONDS, SITE=json.dumps(site))
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.strip() == f"{case} passed"


@pytest.mark.parametrize("case", ["a1", "a2", "a3", "a5", "a6", "a7", "a8"])
def test_case(site: RunSite, case: str) -> None:
    """What the case checks stands beside it in cases.mjs."""
    run(case, told(site))


def test_a4_a_cut_connection_loses_and_doubles_nothing(site: RunSite, proxy: CuttingProxy) -> None:
    """The client comes back by itself and sees each durable frame once."""
    proxy.cut_after = {b"event: updates": 3}
    run("a4_cut", told(site, proxy=f"{proxy.url}/api"))
    assert proxy.cuts == 1


def test_a4_heartbeats_hold_an_idle_connection(site: RunSite, proxy: CuttingProxy) -> None:
    """A proxy that cuts idle links does not cut one whose run is silent for longer."""
    proxy.idle_seconds = 1.5
    run("a4_idle", told(site, proxy=f"{proxy.url}/api"))
    assert proxy.cuts == 0


def test_a9_refusals(site: RunSite) -> None:
    """A key without tasks:cancel ends nothing; each refusal says why."""
    weak = site.key_of("submitter", scopes=("tasks:create", "tasks:read"))
    run("a9", told(site, weakKey=weak))
