#!/bin/sh
# Makes requirements-*.txt anew from requirements-*.in, with a hash for every file. Needs `uv` (pip install uv) and the Python
# package index. For Python 3.12 on Linux x86-64; another platform may need packages that are not listed: lock again there.
# With --upgrade it takes newer versions, without it keeps those that are locked.
set -eu
cd "$(dirname "$0")"
for part in build front-end worker-cpu worker-cuda; do
    uv pip compile --quiet "$@" --generate-hashes --python-version 3.12 --python-platform x86_64-unknown-linux-gnu \
        --no-emit-index-url --no-header --annotation-style line \
        "requirements-$part.in" --output-file "requirements-$part.txt"
done
