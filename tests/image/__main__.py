"""Build the images and try them: `make image-test`, or `python -m tests.image --help`.

It needs root, buildah, runc and, where no base is given, debootstrap; not a container engine. The base is made of
Debian's packages unless `--base` names another one, such as the Dockerfile's own where a registry can be reached.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.image.broker_image import try_broker_image
from tests.image.container import config_of
from tests.image.local_base import local_base
from tests.image.spark_image import try_spark_image

ROOT = Path(__file__).parents[2]
BROKER, SPARK = "localhost/braidmq:test", "localhost/braidmq-spark:test"
REVISION, CREATED = "0000000", "2026-01-01T00:00:00Z"


def main() -> None:
    """Exits with 1 and one line if something is missing."""
    options = _options()
    if os.geteuid() != 0:
        sys.exit("make image-test has to be run as root: it mounts the image's files and runs them as another user")
    if missing := [each for each in ("buildah", "runc", "debootstrap") if shutil.which(each) is None]:
        sys.exit(f"make image-test needs what is not there: apt-get install {' '.join(missing)}")
    base = options.base or local_base()
    _build(base, "broker", BROKER)
    with tempfile.TemporaryDirectory(prefix="braidmq-image-") as made:
        try_broker_image(BROKER, Path(made))
    if options.only != "broker":
        _build(base, "spark", SPARK)
        with tempfile.TemporaryDirectory(prefix="braidmq-image-") as made:
            try_spark_image(BROKER, SPARK, Path(made))
    print("the images hold")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", help="the image that the Dockerfile begins with (made of Debian's packages)")
    parser.add_argument("--only", choices=["broker"], help="without the image of the jobs")
    return parser.parse_args()


def _build(base: str, target: str, image: str) -> None:
    """Steps that have not changed are not repeated, and both images share them."""
    print(f"building {image} over {base} ...", flush=True)
    given = {"BASE": base, "REVISION": REVISION, "CREATED": CREATED}
    words = [word for name, value in given.items() for word in ("--build-arg", f"{name}={value}")]
    # Docker's format has health checks, OCI's own has not.
    how = ["--quiet", "--layers", "--isolation=chroot", "--format=docker", "--target", target]
    subprocess.run(["buildah", "bud", *how, *words, "--tag", image, ROOT], check=True, stdout=subprocess.DEVNULL)
    labels = config_of(image)["Labels"]
    told = {name: labels[f"org.opencontainers.image.{name}"] for name in ("revision", "created", "base.name")}
    assert told == {"revision": REVISION, "created": CREATED, "base.name": base}, told


main()
