"""Makes tokens as a cluster's own keys, or an issuer's, would sign them; and tokens that no one should accept."""

import base64
import hashlib
import hmac
import json
from dataclasses import dataclass, field
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt import api_jws
from jwt.algorithms import ECAlgorithm, OKPAlgorithm

from mq.security.key_ring import Key, KeyRing, parse_key_set

NOW_SECONDS = 1_795_743_000.0


@dataclass
class TokenMaker:
    """One key of an issuer, with which it signs."""

    issuer: str = "braidmq"
    key_id: str = "k1"
    audience: str = "braidmq"
    key: Ed25519PrivateKey | EllipticCurvePrivateKey = field(default_factory=Ed25519PrivateKey.generate)
    now_seconds: float = NOW_SECONDS

    @classmethod
    def on_p256(cls, **named: Any) -> "TokenMaker":
        """One that signs with ES256."""
        return cls(key=generate_private_key(SECP256R1()), **named)

    @property
    def algorithm(self) -> str:
        """What it signs with."""
        return "EdDSA" if isinstance(self.key, Ed25519PrivateKey) else "ES256"

    @property
    def public_jwk(self) -> dict[str, Any]:
        """Its public key."""
        public = self.key.public_key()
        text = OKPAlgorithm.to_jwk(public) if self.algorithm == "EdDSA" else ECAlgorithm.to_jwk(public)
        return {**json.loads(text), "kid": self.key_id}

    @property
    def key_set(self) -> bytes:
        """Its public key, as a set of one."""
        return json.dumps({"keys": [self.public_jwk]}).encode()

    @property
    def keys(self) -> list[Key]:
        """Its public key, as brokers have it."""
        return parse_key_set(self.key_set, self.issuer, strict=True)

    @property
    def ring(self) -> KeyRing:
        """A ring of that key."""
        return KeyRing(self.keys)

    def claims(self, *grants: str, **changed: Any) -> dict[str, Any]:
        """Claims of a good token; what is changed to None is left out."""
        good = {
            "iss": self.issuer,
            "sub": "ann",
            "aud": self.audience,
            "iat": self.now_seconds,
            "exp": self.now_seconds + 3600,
            "jti": "t1",
            "scope": " ".join(f"braidmq:{grant}" for grant in grants),
        }
        return {name: value for name, value in {**good, **changed}.items() if value is not None}

    def token(self, *grants: str, header: dict[str, Any] | None = None, **changed: Any) -> str:
        """A token with these grants, and with what is changed in its claims or its header."""
        headers = {"kid": self.key_id, **(header or {})}
        payload = json.dumps(self.claims(*grants, **changed)).encode()
        return api_jws.encode(payload, self.key, self.algorithm, headers)

    def unsigned(self, *grants: str, key_id: object = None) -> str:
        """A token with `alg: none`."""
        header = {"alg": "none", "kid": key_id or self.key_id, "typ": "JWT"}
        return f"{_part(header)}.{_part(self.claims(*grants))}."

    def signed_with_the_public_key(self, *grants: str) -> str:
        """A token whose HMAC has the public key as its secret, as attackers send it: HS256 by the public PEM."""
        secret = self.key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        signed = f"{_part({'alg': 'HS256', 'kid': self.key_id})}.{_part(self.claims(*grants))}"
        return f"{signed}.{_encoded(hmac.digest(secret, signed.encode(), hashlib.sha256))}"


def _part(document: dict[str, Any]) -> str:
    return _encoded(json.dumps(document).encode())


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
