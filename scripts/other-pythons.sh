#!/bin/sh
# Run pytest with every other supported Python that this machine has; arguments go to pytest.
set -eu
uv=$(command -v uv || echo .uv/bin/uv)
own=$("${VENV:-.venv}/bin/python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
for version in 3.12 3.13; do
    [ "$version" != "$own" ] || continue
    for python in "python$version" "${PYENV_ROOT:-$HOME/.pyenv}/versions/$version".*/bin/python; do
        "$python" -c '' 2> /dev/null || continue
        venv=.venv-$version
        scripts/install.sh "$uv" "$(command -v "$python")" "$venv" --extra dev --extra env-gym --extra env-compatible --extra agents
        "$venv/bin/pytest" "$@"
        break
    done
done
