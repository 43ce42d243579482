#!/bin/sh
# prometheus.sh VENV: puts `prometheus` and `promtool` into VENV/bin: those of the system, or else Debian's, unpacked and not
# installed, so that no service begins and no rights are needed.
set -eu
bin=$(cd "$1/bin" && pwd)
if ! command -v prometheus >/dev/null || ! command -v promtool >/dev/null; then
    command -v apt-get >/dev/null || { echo "alerts: install Prometheus (prometheus and promtool): there is no apt-get to get it by" >&2; exit 1; }
    folder=$(mktemp -d)
    trap 'rm -rf "$folder"' EXIT
    chmod 755 "$folder"
    cd "$folder"
    # The list of packages may be old or missing; only root may renew it.
    apt-get download -qq prometheus 2>/dev/null || { apt-get update -qq && apt-get download -qq prometheus; } || {
        echo "alerts: Debian's package prometheus cannot be had: install Prometheus yourself" >&2
        exit 1
    }
    dpkg-deb --extract ./prometheus_*.deb unpacked
    cp unpacked/usr/bin/prometheus unpacked/usr/bin/promtool "$bin/"
else
    ln -sf "$(command -v prometheus)" "$bin/prometheus"
    ln -sf "$(command -v promtool)" "$bin/promtool"
fi
touch -h "$bin/prometheus"
