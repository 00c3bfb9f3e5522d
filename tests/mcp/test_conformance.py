"""The protocol's own conformance suite, scenario by scenario, against real processes.

Left out are scenarios of what this server does not offer: prompts, completions, sampling, roots,
logging, skills, images and sounds, and the handshake's sessions; and the one of status notifications,
which the suite itself skips.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import factories
from tests.mcp.site import McpSite
from tests.support import node

pytestmark = [pytest.mark.crash, pytest.mark.timeout(300)]

FOLDER = Path(__file__).parent / "js"
SUITE = "node_modules/@modelcontextprotocol/conformance/dist/index.js"
PERSON = "conformance"
SECONDS = 120.0

SCENARIOS = (
    "tools-list",
    "tools-call-simple-text",
    "tools-call-error",
    "json-schema-2020-12",
    "server-stateless",
    "caching",
    "dns-rebinding-protection",
    "http-header-validation",
    "http-custom-header-server-validation",
    "sep-2164-resource-not-found",
    "resources-list",
    "tasks-lifecycle",
    "tasks-capability-negotiation",
    "tasks-wire-fields",
    "tasks-request-state-removal",
    "tasks-mrtr-input",
    "tasks-request-headers",
    "tasks-dispatch-and-envelope",
    "tasks-required-task-error",
    "tasks-mrtr-composition",
    "input-required-result-basic-elicitation",
    "input-required-result-request-state",
    "input-required-result-multi-round",
    "input-required-result-missing-input-response",
    "input-required-result-result-type",
    "input-required-result-unsupported-methods",
    "input-required-result-tampered-state",
    "input-required-result-ignore-extra-params",
    "input-required-result-validate-input",
)


# Checks inside of other scenarios that are about prompts and sampling.
NOT_OFFERED = frozenset(
    {"sep-2549-prompts-list-caching-hints", "sep-2575-server-rejects-undeclared-capability"}
)


@pytest.fixture(scope="module")
def open_site(db: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[McpSite]:
    """A site whose door stands open on loopback: the suite sends no credential."""
    found = McpSite(tmp_path_factory.mktemp("open"))
    found.fleet.env |= {"MCP_AUTH": "none", "MCP_USER": PERSON}
    try:
        found.start(webs=1)
        found.found_tenant()
        factories.make_member(found.tenant, ("submitter",), factories.make_user(username=PERSON))
        yield found
    finally:
        found.stop()


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_scenario(open_site: McpSite, scenario: str, tmp_path: Path) -> None:
    """Every check passes; what the suite skips or only informs of is no failure."""
    node.install(FOLDER)
    command = [SUITE, "server", "--url", open_site.url(), "--scenario", scenario]
    command += ["--spec-version", "2026-07-28", "--force", "-o", str(tmp_path)]
    answer = node.execute(FOLDER, command, seconds=SECONDS)
    checks = [
        check for file in tmp_path.rglob("checks.json") for check in json.loads(file.read_text())
    ]
    wrong = [
        (check["id"], check.get("errorMessage"))
        for check in checks
        if check["status"] in {"FAILURE", "WARNING"} and check["id"] not in NOT_OFFERED
    ]
    assert not wrong, [wrong, answer.stdout]
    assert [check for check in checks if check["status"] == "SUCCESS"], answer.stdout
