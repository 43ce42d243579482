"""The images of the pods, by buildah and without a registry."""

import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyspark

from tests.image.local_base import local_base
from tests.support.kube.chart import ROOT

HERE = Path(__file__).parent
BROKER = "localhost/braidmq:0.2.0"
BROKER_AFTER = "localhost/braidmq:0.1.1"
"""The same programs in an image of another name, to which the chart is upgraded."""
ZOOKEEPER = "localhost/zookeeper:3.9.5"
S3 = "localhost/s3:test"
"""The S3 server of `mq local`: moto."""
PAUSE = "localhost/pause:1"
"""What holds the namespaces of a pod: it sleeps."""
_JAVA = Path("/usr/lib/jvm/java-17-openjdk-amd64")
_NOT_NEEDED = ("src.zip", "jmods", "man", "legal", "include")
_JARS = ("zookeeper-", "slf4j-api", "log4j-", "netty-", "metrics-core", "snappy-java")


def build_images() -> None:
    """Build all of them. Raises `subprocess.CalledProcessError` if one cannot be built."""
    base = local_base()
    _bud(BROKER, ROOT / "Dockerfile", ROOT, base)
    _bud(PAUSE, HERE / "pause.Dockerfile", HERE, base)
    with _folder() as context:
        shutil.copy(ROOT / "constraints.txt", context)
        _bud(S3, HERE / "s3.Dockerfile", context, BROKER)
    with _folder() as context:
        shutil.copytree(HERE / "zookeeper", context / "zookeeper")
        # With what its links lead to, which is elsewhere on this machine.
        shutil.copytree(_JAVA, context / "java", ignore=shutil.ignore_patterns(*_NOT_NEEDED))
        jars = context / "jars"
        jars.mkdir()
        for jar in (Path(pyspark.__file__).parent / "jars").iterdir():
            if jar.name.startswith(_JARS):
                shutil.copy(jar, jars)
        _bud(ZOOKEEPER, HERE / "zookeeper.Dockerfile", context, base)


def save_images(folder: Path) -> Sequence[Path]:
    """Each as an archive that containerd can import."""
    made = []
    for image in (PAUSE, BROKER, ZOOKEEPER, S3):
        archive = folder / f"{image.rpartition('/')[2].replace(':', '-')}.tar"
        _run("push", "--quiet", "--disable-compression", image, f"docker-archive:{archive}:{image}")
        made.append(archive)
    return made


def _bud(image: str, dockerfile: Path, context: Path, base: str) -> None:
    print(f"building {image} ...", flush=True)
    fixed = (
        "--quiet",
        "--layers",
        "--isolation=chroot",
        "--format=docker",
        "--pull-never",
        "--build-arg",
        f"BASE={base}",
    )
    _run("bud", *fixed, "--file", str(dockerfile), "--tag", image, str(context))


@contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="braidmq-image-") as made:
        yield Path(made)


def _run(*arguments: str) -> None:
    subprocess.run(["buildah", *arguments], check=True, stdout=subprocess.DEVNULL)
