"""An issuer of tokens with a real server for its keys."""

import json
import threading
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm
from typing_extensions import override

from tests.oauth.door import URL

ISSUER = "https://id.example/realm"
Key = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey


class Issuer:
    """Signs tokens; its server counts how often the keys are read."""

    def __init__(self) -> None:
        self.keys: dict[str, Key] = {
            "rsa": rsa.generate_private_key(65537, 2048),
            "ec": ec.generate_private_key(ec.SECP256R1()),
        }
        self.reads = 0
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    def __enter__(self) -> "Issuer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def address(self) -> str:
        """Where the keys are."""
        return f"http://127.0.0.1:{self._server.server_port}/keys"

    def sign(
        self,
        key: str | Key | bytes = "rsa",
        algorithm: str | None = None,
        header: Mapping[str, Any] | None = None,
        **claims: Any,
    ) -> str:
        """Return a token that is right unless told otherwise; a claim of None is left out."""
        now = datetime.now(UTC)
        every = {
            "iss": ISSUER,
            "aud": URL,
            "sub": "anna",
            "exp": now + timedelta(minutes=5),
            "iat": now,
            "scope": "tasks:create tasks:read",
            **claims,
        }
        signing = self.keys[key] if isinstance(key, str) and key in self.keys else key
        return jwt.encode(
            {name: value for name, value in every.items() if value is not None},
            signing,
            algorithm or {"rsa": "RS256", "ec": "ES256"}[str(key)],
            headers={"typ": "at+jwt", "kid": str(key), **(header or {})},
        )

    def public_pem(self) -> bytes:
        """Return the public key as text, which anybody may know."""
        form = serialization.PublicFormat.SubjectPublicKeyInfo
        return self.keys["rsa"].public_key().public_bytes(serialization.Encoding.PEM, form)

    def _document(self) -> bytes:
        found = []
        for key_id, key in self.keys.items():
            algorithm: Any = RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else ECAlgorithm
            found.append({**algorithm.to_jwk(key.public_key(), as_dict=True), "kid": key_id})
        return json.dumps({"keys": found}).encode()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                issuer.reads += 1
                body = issuer._document()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            @override
            def log_message(self, format: str, *args: Any) -> None:
                """Say nothing."""

        return Handler
