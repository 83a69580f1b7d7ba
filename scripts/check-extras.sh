#!/bin/sh
# Check every environment of every extra, each in the installation that it belongs to.
# usage: scripts/check-extras.sh [--document] [EXTRA…]    (env-gym, env-heavy, …; default: all)
# --document writes docs/envs/discovered.json and docs/envs/env_list.md from what was found.
set -eu
cd "$(dirname "$0")/.."
venv=${VENV:-.venv}
document=""
[ "${1:-}" != --document ] || { document=1; shift; }
[ $# -gt 0 ] || set -- env-gym env-compatible env-visual env-multi env-web \
    env-heavy env-jax env-mario env-nethack env-procgen env-flight
mkdir -p .checked
failed=""
for extra; do
    name=${extra#env-}
    case $name in
        gym | compatible) own=$venv option=--core ;;
        visual | multi | web) own=$venv option=--$name ;;
        *) own=.venv-$name option=--$name ;;
    esac
    # What is installed already costs a second.
    scripts/setup-env.sh "$option" > /dev/null
    echo "== $extra"
    "$own/bin/evopolicygym" check-envs --bulk --isolate --jobs "${JOBS:-2}" --extra "$extra" \
        --min-level L1 --timeout "${TIMEOUT:-300}" --json > ".checked/$extra.json" ||
        failed="$failed $extra"
done
if [ -n "$document" ]; then
    # Short names, and what has an entry point; the levels above L2 are here.
    "$venv/bin/evopolicygym" check-envs --jobs "${JOBS:-2}" --timeout "${TIMEOUT:-300}" --json \
        > .checked/names.json || failed="$failed names"
    set --
    for file in .checked/*.json; do set -- "$@" --checked "$file"; done
    "$venv/bin/evopolicygym" discover-envs "$@" \
        --output docs/envs/discovered.json --markdown docs/envs/env_list.md
fi
[ -z "$failed" ] || { echo "below L1:$failed" >&2; exit 1; }
