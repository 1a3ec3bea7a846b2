#!/usr/bin/env bash
# Install programs that tests and benchmarks use, where apt-get may: arguments are program:package.
set -euo pipefail
missing=()
for pair in "$@"; do
    command -v "${pair%%:*}" > /dev/null || missing+=("${pair#*:}")
done
[ ${#missing[@]} -eq 0 ] && exit 0
if [ "$(id -u)" -eq 0 ] && command -v apt-get > /dev/null; then
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq && apt-get install -y -qq --no-install-recommends "${missing[@]}" > /dev/null
else
    echo "please install: ${missing[*]}" >&2
    exit 1
fi
