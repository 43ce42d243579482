"""What an image says that it has (its SBOM), beside what it has."""

import json
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

PATH = "opt/braidmq/sbom.cdx.json"
# The project itself, and what Python brings to each folder of packages.
_NOT_IN_LOCKS = {"braidmq", "pip", "setuptools"}


def check_software_list(root: Path) -> int:
    """How many packages the list has. Raises `AssertionError` if it is not what is installed, in the same versions."""
    told = json.loads((root / PATH).read_text())
    assert told["bomFormat"] == "CycloneDX" and told["metadata"]["component"]["name"] == "braidmq"
    components: list[dict[str, Any]] = told["components"]
    for each in components:
        hashes = [one for where in each["externalReferences"] for one in where.get("hashes", ())]
        assert hashes, f"{each['name']} has no hash"
    listed = {canonicalize_name(each["name"]): each["version"] for each in components}
    installed = _installed(root)
    assert listed == installed, f"{listed.items() ^ installed.items()}"
    return len(components)


def _installed(root: Path) -> dict[str, str]:
    """The packages of the image, by their folders."""
    (folder,) = root.glob("opt/braidmq/lib/python*/site-packages")
    found = {canonicalize_name(each.name): each.version for each in distributions(path=[str(folder)])}
    return {name: version for name, version in found.items() if name not in _NOT_IN_LOCKS}
