"""A client's identity by the certificate that it has shown."""

import ssl
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field
from math import inf
from typing import Any

# The form in which people and configurations write them (RFC 4514).
_SHORT = {
    "commonName": "CN",
    "countryName": "C",
    "domainComponent": "DC",
    "localityName": "L",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "stateOrProvinceName": "ST",
    "streetAddress": "STREET",
    "userId": "UID",
}
_LONGEST_NAME = 500
_EXTENSION = "braidmq.client_certificate"
_ESCAPED = str.maketrans({each: f"\\{each}" for each in ',+"\\<>;='} | {"\0": "\\00"})


@dataclass(frozen=True, slots=True)
class PeerCertificate:
    """The subject of a verified certificate (`CN=billing,O=Example`), its common name, and its alternative names.

    Each of `names` has its kind before it: `DNS:…`, `URI:…` (SPIFFE), `email:…`, `IP Address:…`. It ends at
    `until_seconds` (Unix time).
    """

    subject: str
    common_name: str | None
    names: tuple[str, ...]
    until_seconds: float = field(default=inf, compare=False)

    @property
    def name(self) -> str | None:
        """The name of its owner: its first URI, else its first DNS name, else its common name; None without any."""
        uris, hosts = (self._of_kind(kind) for kind in ("URI:", "DNS:"))
        return next((each for each in (*uris, *hosts, self.common_name) if each and _is_name(each)), None)

    def _of_kind(self, kind: str) -> list[str]:
        return [each.removeprefix(kind) for each in self.names if each.startswith(kind)]


def offer_certificate(scope: MutableMapping[str, Any], certificate: PeerCertificate) -> None:
    """Pass the client's identity by TLS to the app."""
    scope.setdefault("extensions", {})[_EXTENSION] = {"certificate": certificate}


def certificate_in(scope: Mapping[str, Any]) -> PeerCertificate | None:
    """Return the identity of a request's client by TLS; None if it has not shown a certificate."""
    found: PeerCertificate | None = scope.get("extensions", {}).get(_EXTENSION, {}).get("certificate")
    return found


def peer_certificate(shown: Mapping[str, Any] | None) -> PeerCertificate | None:
    """Parse what `ssl.SSLObject.getpeercert` returns; None if the client has shown none."""
    if not shown:
        return None
    parts = [tuple(each) for each in shown.get("subject", ())]
    # The most specific part comes first in text, and last in the certificate.
    subject = ",".join("+".join(f"{_SHORT.get(k, k)}={_escaped(v)}" for k, v in part) for part in reversed(parts))
    common = next((value for part in reversed(parts) for name, value in part if name == "commonName"), None)
    names = tuple(f"{kind}:{value}" for kind, value in shown.get("subjectAltName", ()))
    until = shown.get("notAfter")
    return PeerCertificate(subject, common, names, inf if until is None else ssl.cert_time_to_seconds(until))


def _is_name(text: str) -> bool:
    return len(text) <= _LONGEST_NAME and text.isprintable()


def _escaped(value: str) -> str:
    text = value.translate(_ESCAPED)
    if text.startswith((" ", "#")):
        text = f"\\{text}"
    return f"{text[:-1]}\\ " if text.endswith(" ") and not text.endswith("\\ ") else text
