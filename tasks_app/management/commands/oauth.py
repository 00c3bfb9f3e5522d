"""`manage.py oauth`: clients of the built-in authorization server, people's tokens, identities."""

from typing import Any
from urllib.parse import urlsplit

from django.apps import apps
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError, CommandParser
from typing_extensions import override

from tasks_app.admission import identities, tokens
from tasks_app.admission.tokens import OWN_MACHINE
from tasks_app.domain.errors import RuntimeFault
from tasks_app.models import Tenant

# Addresses are stored in one text, parted by white space.
_UNFIT = frozenset(" \t\r\n")


class Command(BaseCommand):
    """Adds and removes clients, ends people's access, links subjects of another issuer."""

    requires_system_checks = []
    help = "Manage OAuth clients of the MCP door, people's tokens, and identities elsewhere."

    @override
    def add_arguments(self, parser: CommandParser) -> None:
        acts = parser.add_subparsers(dest="act", required=True)
        add = acts.add_parser("add-client", help="register a program and print its client id")
        add.add_argument("name", help="what people are shown")
        add.add_argument("--redirect-uri", action="append", required=True)
        add.add_argument("--secret", action="store_true", help="a program that can keep a secret")
        acts.add_parser("clients", help="list programs")
        remove = acts.add_parser("remove-client", help="remove a program and all its tokens")
        remove.add_argument("client_id")
        end = acts.add_parser("end", help="end a person's tokens, of one program or of all")
        end.add_argument("--user", required=True)
        end.add_argument("--client", default="", help="a client id; all without it")
        end.add_argument("--reason", required=True)
        for verb in ("link", "unlink"):
            link = acts.add_parser(verb, help=f"{verb} a subject of MCP_JWT_ISSUER and a member")
            link.add_argument("subject")
            link.add_argument("--tenant", required=True)
            if verb == "link":
                link.add_argument("--user", required=True)

    @override
    def handle(self, *args: Any, **options: Any) -> None:
        if options["act"] not in {"link", "unlink"} and not tokens.is_built_in():
            raise CommandError("The built-in authorization server is off; set MCP_OAUTH=1.")
        try:
            getattr(self, "_" + options["act"].replace("-", "_"))(options)
        except RuntimeFault as error:
            raise CommandError(error.message) from error

    def _add_client(self, options: dict[str, Any]) -> None:
        if not options["name"].strip():
            raise CommandError("A program needs a name: people are shown it.")
        for address in options["redirect_uri"]:
            _require_followed(address)
        model = apps.get_model("oauth2_provider", "Application")
        client: Any = model(
            name=options["name"],
            redirect_uris=" ".join(options["redirect_uri"]),
            client_type="confidential" if options["secret"] else "public",
            authorization_grant_type="authorization-code",
        )
        secret = client.client_secret
        try:
            client.full_clean()
        except ValidationError as error:
            raise CommandError("; ".join(error.messages)) from error
        client.save()
        self.stdout.write(client.client_id)
        if options["secret"]:
            self.stdout.write(secret)
            self.stderr.write("The second line is the secret. It is not shown again.")

    def _clients(self, options: dict[str, Any]) -> None:
        for client in self._all().order_by("name"):
            self.stdout.write(f"{client.client_id}\t{client.name}\t{client.redirect_uris}")

    def _remove_client(self, options: dict[str, Any]) -> None:
        if not self._all().filter(client_id=options["client_id"]).delete()[0]:
            raise CommandError("There is no such client.")

    def _end(self, options: dict[str, Any]) -> None:
        user = _user(options["user"])
        ended = tokens.end_access(user, client_id=options["client"], reason=options["reason"])
        for client_id in ended:
            self.stdout.write(client_id)
        if not ended:
            self.stderr.write("There was nothing to end.")

    def _link(self, options: dict[str, Any]) -> None:
        identities.link_identity(
            tenant=_tenant(options["tenant"]),
            user=_user(options["user"]),
            subject=options["subject"],
        )

    def _unlink(self, options: dict[str, Any]) -> None:
        identities.unlink_identity(tenant=_tenant(options["tenant"]), subject=options["subject"])

    def _all(self) -> Any:
        return apps.get_model("oauth2_provider", "Application").objects.all()


def _require_followed(address: str) -> None:
    """Refuse an address to which no answer would be sent (RFC 8252, RFC 9700)."""
    try:
        parts = urlsplit(address)
    except ValueError:
        parts = urlsplit("")
    is_own = parts.scheme == "http" and parts.hostname in OWN_MACHINE
    is_whole = bool(parts.hostname) and "#" not in address and not set(address) & _UNFIT
    if not (is_whole and (is_own or parts.scheme == "https")):
        raise CommandError(
            f"{address} cannot be answered: it has to be https://, or http:// at localhost,"
            " 127.0.0.1 or [::1], and without a fragment."
        )


def _user(username: str) -> User:
    user = User.objects.filter(username=username).first()
    if user is None:
        raise CommandError("There is no such user.")
    return user


def _tenant(slug: str) -> Tenant:
    tenant = Tenant.objects.filter(slug=slug).first()
    if tenant is None:
        raise CommandError("There is no such tenant.")
    return tenant
