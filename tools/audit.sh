#!/bin/sh
# Looks for known vulnerabilities of all that is installed. Where nobody tells them, it says so, and nothing is wrong.
set -u
cd "$(dirname "$0")/.."
said=$("$1" --require-hashes --disable-pip --progress-spinner off --requirement locks/all.txt 2>&1)
code=$?
printf '%s\n' "$said"
case $said in
*ServiceError* | *ConnectionError* | *"Max retries exceeded"* | *"Failed to establish"* | *"Connection refused"* | *Forbidden*)
    echo "make audit: the registry does not tell of vulnerabilities here: nothing was checked" >&2
    exit 0
    ;;
*"could not be audited"*)
    echo "make audit: the registry does not know some of these here: those were not checked" >&2
    ;;
esac
exit $code
