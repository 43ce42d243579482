"""Who a client is by the certificate that it has shown."""

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any

# As people and configurations write them (RFC 4514).
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
_EXTENSION = "braidmq.client_certificate"
_ESCAPED = str.maketrans({each: f"\\{each}" for each in ',+"\\<>;='} | {"\0": "\\00"})


@dataclass(frozen=True, slots=True)
class PeerCertificate:
    """The subject of a verified certificate (`CN=billing,O=Example`), its common name, and its alternative names.

    Each of `names` has its kind before it: `DNS:…`, `URI:…` (SPIFFE), `email:…`, `IP Address:…`.
    """

    subject: str
    common_name: str | None
    names: tuple[str, ...]


def offer_certificate(scope: MutableMapping[str, Any], certificate: PeerCertificate) -> None:
    """Let the app see who the client of a request is by TLS."""
    scope.setdefault("extensions", {})[_EXTENSION] = {"certificate": certificate}


def certificate_in(scope: Mapping[str, Any]) -> PeerCertificate | None:
    """Who the client of a request is by TLS; None where it has not shown a certificate."""
    found: PeerCertificate | None = scope.get("extensions", {}).get(_EXTENSION, {}).get("certificate")
    return found


def peer_certificate(shown: Mapping[str, Any] | None) -> PeerCertificate | None:
    """What `ssl.SSLObject.getpeercert` says; None where the client has shown none."""
    if not shown:
        return None
    parts = [tuple(each) for each in shown.get("subject", ())]
    # The most specific part comes first in text, and last in the certificate.
    subject = ",".join("+".join(f"{_SHORT.get(k, k)}={_escaped(v)}" for k, v in part) for part in reversed(parts))
    common = next((value for part in reversed(parts) for name, value in part if name == "commonName"), None)
    names = tuple(f"{kind}:{value}" for kind, value in shown.get("subjectAltName", ()))
    return PeerCertificate(subject, common, names)


def _escaped(value: str) -> str:
    text = value.translate(_ESCAPED)
    if text.startswith((" ", "#")):
        text = f"\\{text}"
    return f"{text[:-1]}\\ " if text.endswith(" ") and not text.endswith("\\ ") else text
