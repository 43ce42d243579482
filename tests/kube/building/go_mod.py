"""Write `go/go.mod` for a version of Kubernetes: `python -m tests.kube.building.go_mod 1.33.13`.

Kubernetes' own go.mod replaces the modules of its staging folder by that folder. Whoever requires Kubernetes has to
replace them by what is published of the same version.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent / "go"
KWOK = "v0.7.0"
"""Made for the same minor version of Kubernetes: it shares its libraries."""


def main() -> None:
    """Writes go.mod and go.sum. Raises `subprocess.CalledProcessError` if Go refuses."""
    (version,) = sys.argv[1:]
    told = subprocess.run(
        ["go", "mod", "download", "-json", f"k8s.io/kubernetes@v{version}"], check=True, capture_output=True, text=True
    ).stdout
    (HERE / "go.mod").write_text(go_mod(Path(json.loads(told)["GoMod"]).read_text(), version))
    subprocess.run(["go", "mod", "tidy"], cwd=HERE, check=True)


def go_mod(of_kubernetes: str, version: str) -> str:
    """The text of our go.mod from that of Kubernetes. `go mod tidy` adds what else we import, in the same versions."""
    of_staging = re.findall(r"^\s*(k8s\.io/\S+) => \./staging", of_kubernetes, re.M)
    published = "v0." + version.partition(".")[2]
    (language,) = re.findall(r"^go \S+$", of_kubernetes, re.M)
    compatible = re.findall(r"^godebug \S+$", of_kubernetes, re.M)
    required = [f"k8s.io/kubernetes v{version}", f"sigs.k8s.io/kwok {KWOK}"]
    replaced = [f"{each} => {each} {published}" for each in of_staging]
    parts = ["module braidmq.dev/kube", language, *compatible, _block("require", required), _block("replace", replaced)]
    return "\n\n".join(parts) + "\n"


def _block(word: str, lines: list[str]) -> str:
    return "\n".join([f"{word} (", *(f"\t{each}" for each in lines), ")"])


if __name__ == "__main__":
    main()
