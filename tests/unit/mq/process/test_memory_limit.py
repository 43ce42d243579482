"""How much memory a process may have, as Linux tells it."""

from pathlib import Path

import pytest

from mq.process.memory_limit import memory_limit_bytes

MIB, MACHINE_KIB = 1024 * 1024, 8 * 1024 * 1024


def system(root: Path, group: str, limits: dict[str, str]) -> int | None:
    files = {"proc/self/cgroup": group, "proc/meminfo": f"MemTotal: {MACHINE_KIB} kB\nMemFree: 1 kB\n"}
    for name, text in {**files, **{f"sys/fs/cgroup/{each}": limit for each, limit in limits.items()}}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return memory_limit_bytes(root)


@pytest.mark.parametrize(
    ("group", "limits", "expected"),
    [
        pytest.param("0::/\n", {"memory.max": f"{512 * MIB}\n"}, 512 * MIB, id="a container's own group"),
        pytest.param("0::/\n", {"memory.max": "max\n"}, MACHINE_KIB * 1024, id="no limit but the machine's"),
        pytest.param(
            "0::/a/b\n", {"a/memory.max": f"{100 * MIB}", "a/b/memory.max": f"{200 * MIB}"}, 100 * MIB, id="around it"
        ),
        pytest.param(
            "0::/pod/x\n", {"memory.max": f"{300 * MIB}"}, 300 * MIB, id="a path that is not there in the container"
        ),
        pytest.param(
            "4:cpu,memory:/x\n0::/\n", {"memory/x/memory.limit_in_bytes": f"{50 * MIB}"}, 50 * MIB, id="version 1"
        ),
        pytest.param(
            "4:memory:/\n", {"memory/memory.limit_in_bytes": "9223372036854771712"}, MACHINE_KIB * 1024, id="1, none"
        ),
        pytest.param("4:cpu:/x\n", {"memory/x/memory.limit_in_bytes": "5"}, MACHINE_KIB * 1024, id="another's"),
    ],
)
def test_the_least_limit_counts(tmp_path: Path, group: str, limits: dict[str, str], expected: int) -> None:
    assert system(tmp_path, group, limits) == expected


def test_a_system_that_does_not_tell(tmp_path: Path) -> None:
    assert memory_limit_bytes(tmp_path) is None
