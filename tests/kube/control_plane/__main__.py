"""Test the chart on a real control plane: `make kube`, or `python -m tests.kube.control_plane [OPTIONS OF PYTEST]`.

It needs Go the first time. All that it starts ends with it, however it ends.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.kube.building.build import built
from tests.kube.building.definitions import definitions
from tests.kube.cluster.control_plane import ControlPlane
from tests.kube.control_plane.world import prepare

HERE = Path(__file__).parent
STAGES = HERE / "stages.yaml"
WORKERS = 4
"""They wait most of the time: for what controllers do, and for Helm to ask again."""


def main() -> None:
    """Exits with what pytest exits with."""
    program, of_others = built("kubeall"), definitions()
    began_seconds = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="braidmq-kube-") as made:
        folder = Path(made)
        with ControlPlane(program, folder) as control_plane:
            prepare(control_plane.kubeconfig, of_others)
            control_plane.start_kwok(STAGES)
            print(f"a control plane serves after {time.monotonic() - began_seconds:.1f} s", flush=True)
            environment = {**os.environ, "KUBE_TESTS_KUBECONFIG": str(control_plane.kubeconfig)}
            spread = ("-n", str(WORKERS), "--dist", "loadgroup")
            command = [sys.executable, "-m", "pytest", HERE, *spread, *sys.argv[1:]]
            code = subprocess.run(command, env=environment).returncode
            if code != 0:
                _show_logs(folder)
    print(f"make kube took {time.monotonic() - began_seconds:.0f} s", flush=True)
    sys.exit(code)


def _show_logs(folder: Path) -> None:
    for log in sorted(folder.glob("*.log")):
        print(f"--- the end of {log.name}", *log.read_text(errors="replace").splitlines()[-5:], sep="\n")


if __name__ == "__main__":
    main()
