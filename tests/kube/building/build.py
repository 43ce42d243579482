"""Build Kubernetes' programs into a cache, once: `python -m tests.kube.building.build kubeall kubenode`.

The cache is `braidmq-kube` in the user's cache folder, or what KUBE_TESTS_CACHE names. It can be deleted at any time.
What is there was built from the same sources by the same Go: both are in the name of its folder.
"""

import argparse
import fcntl
import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).parent
KUBERNETES = HERE / "go"
PROGRAMS = {
    "kubeall": (KUBERNETES, "./kubeall"),
    "kubenode": (KUBERNETES, "./kubenode"),
    "coredns": (HERE / "coredns", "."),
}
"""Each with its module, and its package there."""
_STAMPED = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")


def cache() -> Path:
    """The folder with all that is built or downloaded."""
    users = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.environ.get("KUBE_TESTS_CACHE") or users / "braidmq-kube").absolute()


def built(program: str) -> Path:
    """The program's file, which is built if it is not there.

    Exits with 1 and one line if there is no Go. Raises `subprocess.CalledProcessError` if Go cannot build it.
    """
    if shutil.which("go") is None:
        sys.exit("make kube builds Kubernetes and needs Go 1.24 or later: put `go` on the PATH")
    target = cache() / _key(program) / program
    if not target.exists():
        with _alone():
            # Somebody else may have built it meanwhile.
            if not target.exists():
                _build(program, target)
    return target


def go_environment() -> Mapping[str, str]:
    """The variables of Go, which keeps what it downloads and compiles in the cache."""
    folders = {"GOMODCACHE": str(cache() / "modules"), "GOCACHE": str(cache() / "objects")}
    # Its files can be deleted, and need no C compiler.
    return {**os.environ, **folders, "GOFLAGS": "-modcacherw -buildvcs=false", "CGO_ENABLED": "0", "GOWORK": "off"}


def kubernetes_version() -> str:
    """As in 1.33.13."""
    (version,) = re.findall(r"^\s*k8s\.io/kubernetes v(\S+)$", (KUBERNETES / "go.mod").read_text(), re.M)
    return str(version)


def _build(program: str, target: Path) -> None:
    began_seconds = time.monotonic()
    print(f"building {program} for Kubernetes {kubernetes_version()}, which takes minutes ...", flush=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    made = target.with_suffix(".new")
    module, package = PROGRAMS[program]
    command = ["go", "build", "-trimpath", "-ldflags", _linking(kubernetes_version()), "-o", made, package]
    subprocess.run(command, cwd=module, env=go_environment(), check=True)
    made.replace(target)
    print(f"built {program} in {time.monotonic() - began_seconds:.0f} s: {target}", flush=True)


def _linking(version: str) -> str:
    """Without symbols, and with the version that clients ask for."""
    major, minor, _ = version.split(".")
    stamps = {"gitVersion": f"v{version}", "gitMajor": major, "gitMinor": minor, "gitTreeState": "archive"}
    return " ".join(["-s -w", *(f"-X {each}.{name}={value}" for each in _STAMPED for name, value in stamps.items())])


def _key(program: str) -> str:
    """A name for what the program is built from."""
    go = subprocess.run(["go", "env", "GOVERSION"], check=True, capture_output=True, text=True).stdout
    digest = hashlib.sha256(go.encode())
    module, package = PROGRAMS[program]
    for each in (module / "go.mod", module / "go.sum", module / package / "main.go"):
        digest.update(each.read_bytes())
    return f"{kubernetes_version()}-{digest.hexdigest()[:12]}"


@contextmanager
def _alone() -> Iterator[None]:
    """One builds, and others wait for it."""
    cache().mkdir(parents=True, exist_ok=True)
    with (cache() / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def main() -> None:
    """Builds what is named. Told to end, it ends what it has started."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="+", choices=list(PROGRAMS))
    for each in parser.parse_args().programs:
        print(built(each))


if __name__ == "__main__":
    main()
