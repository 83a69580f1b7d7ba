#!/bin/sh
# Install the locked packages, hashes checked, and this project, editable.
# usage: scripts/install.sh UV PYTHON VENV [EXPORT-OPTION…]
set -eu
uv=$1 python=$2 venv=$3
shift 3
# uv does not read pip's configuration: take over the index that pip was pointed to.
index=${PIP_INDEX_URL:-$("$python" -m pip config get global.index-url 2> /dev/null || true)}
[ -z "$index" ] || export UV_DEFAULT_INDEX="${UV_DEFAULT_INDEX:-$index}"
[ -x "$venv/bin/python" ] || "$uv" venv --quiet --python "$python" "$venv"
locked=$(mktemp)
trap 'rm -f "$locked"' EXIT
"$uv" export --quiet --frozen --no-emit-workspace "$@" > "$locked"
"$uv" pip install --quiet --python "$venv/bin/python" --require-hashes -r "$locked"
"$uv" pip install --quiet --python "$venv/bin/python" --no-deps -e . -e benchmarks/cartpole
"$venv/bin/python" -m compileall -q src benchmarks/cartpole/src || true
echo "environment ready: $venv"
