#!/bin/sh
# go_tool.sh NAME: prints where the program NAME is, which tools/go/NAME/go.mod names. It is built the first time, and kept.
set -eu
folder=$(cd "$(dirname "$0")/go/$1" && pwd)
command -v go >/dev/null || { echo "$1 is built by Go, and there is no go on the PATH: install Go 1.26 or later" >&2; exit 1; }
program=${XDG_CACHE_HOME:-$HOME/.cache}/braidmq-kube/tools/$1-$(cat "$folder/go.mod" "$folder/go.sum" | sha256sum | cut -c 1-16)
if [ ! -x "$program" ]; then
    echo "building $1, the first time ..." >&2
    (cd "$folder" && go build -trimpath -o "$program.$$" tool)
    mv "$program.$$" "$program"
fi
echo "$program"
