"""The node's machine: a network, mounts and kernel settings of its own, in the namespaces that `__main__.py` makes."""

import subprocess
from collections.abc import Mapping
from pathlib import Path

ADDRESS = "10.99.0.1"
DNS_ADDRESS = "10.96.0.10"
"""Where pods ask for names: a service, behind which CoreDNS is."""
_BRIDGE = "node0"
_KERNEL: Mapping[str, str] = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}
"""What a kubelet sets. It sees and sets files in place of the machine's."""


def furnish(folder: Path) -> None:
    """Make it ready for a kubelet. Raises `subprocess.CalledProcessError` if the kernel refuses."""
    for each in ("/run", "/var/log"):
        _run("mount", "-t", "tmpfs", "tmpfs", each)
    for name, value in _KERNEL.items():
        own = folder / name.replace("/", "-")
        own.write_text(value)
        _run("mount", "--bind", str(own), f"/proc/sys/{name}")
    _run("ip", "link", "set", "lo", "up")
    _run("ip", "link", "add", _BRIDGE, "type", "bridge")
    _run("ip", "address", "add", f"{ADDRESS}/24", "dev", _BRIDGE)
    _run("ip", "link", "set", _BRIDGE, "up")
    _run("ip", "route", "add", "default", "via", ADDRESS, "dev", _BRIDGE)
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")


def use_names_of_the_cluster(folder: Path) -> None:
    """Have the programs of this namespace ask the cluster's DNS."""
    own = folder / "resolv.conf"
    own.write_text(f"nameserver {DNS_ADDRESS}\nsearch cluster.local\noptions ndots:5\n")
    _run("mount", "--bind", str(own), str(Path("/etc/resolv.conf").resolve()))


def _run(*command: str) -> None:
    subprocess.run(command, check=True)
