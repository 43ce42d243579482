"""What `__main__.py` runs in the namespaces that it makes: the cluster, and the tests against it."""

import os
import subprocess
import sys
import time
from pathlib import Path

from tests.kube.cluster.control_plane import ControlPlane
from tests.kube.node.machine import ADDRESS, furnish, use_names_of_the_cluster
from tests.kube.node.node import Node

HERE = Path(__file__).parent


def main() -> None:
    """Exits with what pytest exits with."""
    folder, kubeall, kubenode, coredns = map(Path, sys.argv[1:5])
    began_seconds = time.monotonic()
    furnish(folder)
    programs = {"kubenode": kubenode, "coredns": coredns}
    with ControlPlane(kubeall, folder, address=ADDRESS) as control_plane, Node(control_plane, programs, folder) as node:
        node.import_images(sorted((folder / "images").iterdir()))
        use_names_of_the_cluster(folder)
        print(f"a node serves after {time.monotonic() - began_seconds:.0f} s", flush=True)
        environment = {**os.environ, "KUBE_TESTS_KUBECONFIG": str(control_plane.kubeconfig)}
        code = subprocess.run([sys.executable, "-m", "pytest", HERE, *sys.argv[5:]], env=environment).returncode
        if code != 0:
            for log in sorted(folder.glob("*.log")):
                print(f"--- the end of {log.name}", *log.read_text(errors="replace").splitlines()[-5:], sep="\n")
    print(f"make kube-node took {time.monotonic() - began_seconds:.0f} s", flush=True)
    sys.exit(code)


if __name__ == "__main__":
    main()
