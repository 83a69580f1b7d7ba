#!/bin/sh
# Install environment families, from package registries only, and say how to check them.
# Everything may be run again: what is there already is left alone.
set -eu
cd "$(dirname "$0")/.."

usage() {
    cat << 'END'
usage: scripts/setup-env.sh OPTION…

Into .venv:
  --smoke         the base package: toy, cartpole, Classic Control, Toy Text
  --core          env-gym and env-compatible: Core-16 and what belongs to it
  --visual        env-visual: MiniWorld, ViZDoom, Crafter, stable-retro
  --multi         env-multi: PettingZoo, MPE2, MAgent2, MOMAland
  --web           env-web: BrowserGym MiniWoB++, and a Chromium (Debian's, if none is found)
Into an environment of its own, .venv-NAME, because its versions exclude the others':
  --heavy         env-heavy: Meta-World, dm_control, robosuite
  --jax           env-jax: Gymnasium's JAX environments, Jumanji, gymnax, Craftax
  --mario         env-mario: Super Mario Bros.
  --nethack       env-nethack: NLE, MiniHack
  --procgen       env-procgen: Procgen
  --flight        env-flight: PyFlyt
Assets:
  --atari-roms    see to it that ALE finds its ROMs (ale-py brings them)
  --wfc-patterns  fetch upstream's MiniGrid-WFC images with git; the project's own serve without
General:
  --no-dev        leave out what developers need (tests, linters)
  --help
PYTHON names the interpreter for new environments.
END
}

fail() {
    echo "setup-env.sh: $*" >&2
    exit 2
}

dev="--extra dev" shared="" smoke="" separate="" roms="" patterns=""
[ $# -gt 0 ] || { usage >&2; exit 2; }
for option; do
    case $option in
        --smoke) smoke=1 ;;
        --core) shared="$shared env-gym env-compatible" ;;
        --visual | --multi | --web) shared="$shared env-${option#--}" ;;
        --heavy | --jax | --mario | --nethack | --procgen | --flight)
            separate="$separate ${option#--}"
            ;;
        --atari-roms) roms=1 shared="$shared env-gym" ;;
        --wfc-patterns) patterns=1 shared="$shared env-compatible" ;;
        --no-dev) dev="" ;;
        --help | -h) usage; exit 0 ;;
        *) usage >&2; fail "unknown option $option" ;;
    esac
done
[ -n "$smoke$shared$separate" ] || { usage >&2; fail "nothing to install"; }

# Python packages are compiled once, not in every worker.
export UV_COMPILE_BYTECODE=1 UV_PYTHON_DOWNLOADS=never UV_NO_PROGRESS=1
export UV_SYSTEM_CERTS="${UV_SYSTEM_CERTS:-1}"
python=${PYTHON:-$(command -v python3.11 || command -v python3)} || fail "needs Python >= 3.11"
uv=$(command -v uv || echo .uv/bin/uv)
[ "$uv" != .uv/bin/uv ] || make --no-print-directory PYTHON="$python" .uv/bin/uv
venv=${VENV:-.venv}

if [ -n "$smoke$shared" ]; then
    extras=""
    for extra in $shared; do extras="$extras --extra $extra"; done
    # shellcheck disable=SC2086
    scripts/install.sh "$uv" "$python" "$venv" $dev $extras
    echo "check: $venv/bin/evopolicygym check-envs"
    for extra in $(printf '%s\n' $shared | sort -u); do
        echo "check: $venv/bin/evopolicygym check-envs --bulk --jobs 2 --extra $extra"
    done
fi

for name in $separate; do
    scripts/install.sh "$uv" "$python" ".venv-$name" --extra "env-$name"
    echo "check: .venv-$name/bin/evopolicygym check-envs --bulk --jobs 2 --extra env-$name"
done

case " $shared " in *" env-web "*)
    if ! command -v chromium > /dev/null && ! command -v chromium-browser > /dev/null &&
        ! command -v google-chrome > /dev/null; then
        [ "$(id -u)" = 0 ] || fail "needs Chromium: as root, apt-get install chromium"
        apt-get update -qq
        apt-get install -y -qq --no-install-recommends chromium > /dev/null
    fi
    echo "browser: $(command -v chromium || command -v chromium-browser || command -v google-chrome)"
    ;;
esac

if [ -n "$roms" ]; then
    "$venv/bin/python" -P -c '
from pathlib import Path
import ale_py
roms = sorted((Path(ale_py.__file__).parent / "roms").glob("*.bin"))
print(f"ROMs: {len(roms)}, from the package ale-py")
raise SystemExit(not roms)'
fi

if [ -n "$patterns" ]; then
    target=$("$venv/bin/python" -P -c '
from pathlib import Path
from importlib.util import find_spec
print(Path(find_spec("minigrid").origin).parent / "envs" / "wfc" / "patterns")')
    checkout=$(mktemp -d)
    trap 'rm -rf "$checkout"' EXIT
    git clone --quiet --depth 1 "${WFC_REPOSITORY:-https://github.com/Farama-Foundation/Minigrid}" \
        "$checkout/minigrid" || fail "--wfc-patterns needs a network that reaches upstream"
    mkdir -p "$target"
    cp "$checkout"/minigrid/minigrid/envs/wfc/patterns/*.png "$target/"
    echo "patterns: $(find "$target" -name '*.png' | wc -l) in $target"
fi
