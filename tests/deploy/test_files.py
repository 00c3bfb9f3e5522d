"""Rules: image and compose file keep to S152, and every variable in them means something."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.architecture.sources import ROOT, variables

DEPLOY = ROOT / "deploy"
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
DOCKERFILE = (DEPLOY / "Dockerfile").read_text()
OURS = ("api", "streams", "worker", "sweep", "migrate")

# Variables of compose.yaml that are not settings of the product, each with who reads it.
NOT_SETTINGS = {
    "PERDURE_HOST": "Caddyfile",
    "PERDURE_INPUT": "a mount",
    "PERDURE_IMAGE": "an image",
    "POSTGRES_IMAGE": "an image",
    "REDIS_IMAGE": "an image",
    "CADDY_IMAGE": "an image",
    "WORKER_PROCESSES": "entrypoint.sh",
    "POSTGRES_PASSWORD_FILE": "the image of PostgreSQL",
    "POSTGRES_INITDB_ARGS": "the image of PostgreSQL",
}


def _instructions() -> list[tuple[str, str]]:
    """Return the Dockerfile's instructions with their text, continuations joined."""
    lines = [line for line in DOCKERFILE.splitlines() if not line.lstrip().startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    return [
        (name, text.strip())
        for name, _, text in (line.partition(" ") for line in joined.splitlines() if line.strip())
    ]


def _last_stage() -> list[tuple[str, str]]:
    instructions = _instructions()
    last = max(number for number, (name, _) in enumerate(instructions) if name == "FROM")
    return instructions[last:]


# --- the image ---------------------------------------------------------------------------------


def test_image_is_built_in_stages_from_a_slim_base_that_can_be_pinned() -> None:
    """One argument names the base of both stages, so that a digest pins both."""
    instructions = _instructions()
    [(_, argument)] = [item for item in instructions if item[0] == "ARG"]
    assert re.fullmatch(r"PYTHON_IMAGE=python:3\.\d+-slim-\w+(@sha256:[0-9a-f]{64})?", argument)
    bases = [text.split(" ")[0] for name, text in instructions if name == "FROM"]
    assert bases == ["${PYTHON_IMAGE}", "${PYTHON_IMAGE}"]


def test_image_installs_only_what_is_hashed() -> None:
    """S150: every `pip install` checks digests, and none names an address."""
    runs = [text for name, text in _instructions() if name == "RUN"]
    installs = [part for text in runs for part in text.split("&&") if "pip install" in part]
    assert len(installs) == 2
    assert all("--require-hashes" in part for part in installs)
    assert "://" not in "".join(installs)


def test_image_adds_no_tools() -> None:
    """No packages of the system are added to the slim base."""
    assert not re.search(r"\b(apt-get|apt|apk|curl|wget)\b", DOCKERFILE)


def test_image_runs_as_nobody_in_particular() -> None:
    """Uid 10001, with a health check, through the entry point that reads secrets from files."""
    stage = dict(_last_stage())
    assert stage["USER"] == "10001:10001"
    assert "healthcheck.py" in stage["HEALTHCHECK"]
    assert "entrypoint.sh" in stage["ENTRYPOINT"]
    names = [name for name, _ in _last_stage()]
    assert names.index("USER") > max(n for n, name in enumerate(names) if name in {"RUN", "COPY"})


def test_image_holds_no_secret() -> None:
    """No secret is an argument or a lasting variable of the image."""
    kept = " ".join(text for name, text in _instructions() if name in {"ENV", "ARG"})
    assert not re.search(r"SECRET|PASSWORD|TOKEN|DATABASE_URL|REDIS_URL", kept)


def test_build_context_is_an_allow_list() -> None:
    """What is copied is allowed, nothing else is: no `.env`, no secrets, no data."""
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    allowed = {line[1:] for line in lines if line.startswith("!")}
    assert "*" in lines
    copied = {
        source.removesuffix("/")
        for name, text in _instructions()
        if name == "COPY" and "--from" not in text
        for source in [word for word in text.split() if not word.startswith("--")][:-1]
    }
    assert {source for source in copied if not _allowed(source, allowed)} == set()
    assert all((ROOT / source).exists() for source in copied)
    assert not allowed & {".env", "deploy", "deploy/secrets"}


def _allowed(source: str, allowed: set[str]) -> bool:
    return any(source == entry or source.startswith(f"{entry}/") for entry in allowed)


# --- the services --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SERVICES)
def test_service_is_hardened(name: str) -> None:
    """S152 for each service: read-only, no capabilities, no new privileges, limits, tmpfs."""
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert "privileged" not in service
    assert {"mem_limit", "pids_limit", "cpus"} <= set(service)
    assert any(mount.startswith("/tmp:") for mount in service["tmpfs"])  # noqa: S108
    assert set(service.get("cap_add", [])) <= ({"NET_BIND_SERVICE"} if name == "edge" else set())


@pytest.mark.parametrize("name", SERVICES)
def test_service_never_runs_latest(name: str) -> None:
    """Each image has a tag that says a version, ours apart."""
    default = re.sub(r"\$\{\w+:-(.*)\}", r"\1", SERVICES[name]["image"])
    assert default == "perdure:local" or re.search(r":\d+(\.\d+)+", default), default


def test_only_the_edge_publishes_ports() -> None:
    """No database or Redis port leaves its network."""
    assert [name for name, service in SERVICES.items() if "ports" in service] == ["edge"]
    assert all("network_mode" not in service for service in SERVICES.values())


def test_two_networks_keep_data_inside() -> None:
    """`data` is internal; PostgreSQL, Redis and background processes are on nothing else."""
    assert COMPOSE["networks"]["data"] == {"internal": True}
    assert set(COMPOSE["networks"]) == {"edge", "data"}
    inside = {name for name, service in SERVICES.items() if service["networks"] == ["data"]}
    assert inside == {"postgres", "redis", "worker", "sweep", "migrate"}


def test_what_runs() -> None:
    """Two workers, a sweeper, two web services, one migration before all of them."""
    assert SERVICES["worker"]["deploy"]["replicas"] == 2
    commands = {name: SERVICES[name]["command"][0] for name in OURS}
    assert commands == {
        "api": "web",
        "streams": "web",
        "worker": "worker",
        "sweep": "sweep",
        "migrate": "migrate",
    }
    for name in ("api", "streams", "worker", "sweep"):
        after = SERVICES[name]["depends_on"]["migrate"]["condition"]
        assert after == "service_completed_successfully"
    assert SERVICES["migrate"]["restart"] == "no"


def test_versions_of_the_servers() -> None:
    """The major versions that the tests run against."""
    assert "postgres:18." in SERVICES["postgres"]["image"]
    assert "redis:8." in SERVICES["redis"]["image"]


def test_everything_long_running_comes_back() -> None:
    """A restart policy, since the worker is built on one."""
    others = {name: service["restart"] for name, service in SERVICES.items() if name != "migrate"}
    assert set(others.values()) == {"unless-stopped"}


# --- secrets and variables -----------------------------------------------------------------------


def test_secrets_are_files_that_must_be_made() -> None:
    """Each used secret is declared as a file below secrets/, and each declared one is used."""
    declared = {name: entry["file"] for name, entry in COMPOSE["secrets"].items()}
    assert declared == {name: f"./secrets/{name}" for name in declared}
    used = {name for service in SERVICES.values() for name in service.get("secrets", [])}
    assert used == set(declared)
    assert "secrets/" in (DEPLOY / ".gitignore").read_text().splitlines()


@pytest.mark.parametrize("name", SERVICES)
def test_no_service_carries_a_secret_in_its_definition(name: str) -> None:
    """Passwords, keys and addresses with passwords come as files, readable by that service."""
    service = SERVICES[name]
    for variable, value in service.get("environment", {}).items():
        if re.search(r"SECRET|PASSWORD|TOKEN|DATABASE_URL|REDIS_URL", variable):
            assert variable.endswith("_FILE"), variable
            assert value.removeprefix("/run/secrets/") in service["secrets"], variable


def test_every_variable_exists() -> None:
    """A name in compose.yaml is a setting, a setting's file, or listed with its reader."""
    given = {name for service in SERVICES.values() for name in service.get("environment", {})}
    unknown = {
        name
        for name in given
        if name.removesuffix("_FILE") not in variables() and name not in NOT_SETTINGS
    }
    assert unknown == set()


def test_env_example_and_compose_agree() -> None:
    """Every placeholder is in env.example and every line there is used."""
    text = (DEPLOY / "compose.yaml").read_text()
    asked = set(re.findall(r"\$\{(\w+)", text))
    offered = dict(
        line.split("=", 1)
        for line in (DEPLOY / "env.example").read_text().splitlines()
        if line and not line.startswith("#")
    )
    assert asked == set(offered)
    assert set(offered) <= set(variables()) | set(NOT_SETTINGS)
    assert not any(re.search(r"SECRET|PASSWORD|TOKEN|(?<!JWKS_)URL", name) for name in offered)


def test_env_example_repeats_the_defaults_of_compose_and_code() -> None:
    """Copying env.example changes no default; where the product has one, it is the same."""
    text = (DEPLOY / "compose.yaml").read_text()
    defaults = dict(re.findall(r"\$\{(\w+):-([^}]*)\}", text))
    offered = dict(re.findall(r"^(\w+)=(.*)$", (DEPLOY / "env.example").read_text(), re.M))
    assert {name: offered[name] for name in defaults} == defaults
    for name, value in defaults.items():
        if name in variables() and variables()[name].default:
            assert variables()[name].default.strip("'") == value, name


def test_host_names_have_no_default() -> None:
    """The two names that only the operator knows are asked for."""
    text = (DEPLOY / "compose.yaml").read_text()
    assert set(re.findall(r"\$\{(\w+):\?", text)) == {"PERDURE_HOST", "DJANGO_ALLOWED_HOSTS"}


def test_edge_sends_streams_to_their_own_processes() -> None:
    """The pattern in the Caddyfile fits the addresses of the routes and no others."""
    caddy = (DEPLOY / "Caddyfile").read_text()
    [pattern] = re.findall(r"path_regexp (\S+)", caddy)
    task = "0d4b9c9e-8f0e-4d0f-9f3a-2d5d3e2c1b0a"
    streams = (f"/runtime/tasks/{task}/events", f"/stream/tasks/{task}/", "/stream/tenant/", "/mcp")
    assert all(re.search(pattern, path) for path in streams)
    others = [f"/runtime/tasks/{task}", "/tasks/", f"/tasks/{task}/", "/runtime/tasks"]
    others += ["/o/token/", "/.well-known/oauth-protected-resource/mcp", "/mcp/x"]
    assert not any(re.search(pattern, path) for path in others)


def test_mounted_files_exist() -> None:
    """Every file that a service mounts from this folder is here."""
    mounts = [m for service in SERVICES.values() for m in service.get("volumes", [])]
    files = [Path(mount.split(":")[0]) for mount in mounts if mount.startswith("./")]
    assert files
    assert all((DEPLOY / path).is_file() for path in files)
