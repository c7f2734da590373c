#!/bin/sh
# Makes .venv in the current directory and installs into it: sh scripts/setup.sh [PIP ARGUMENTS...]
# Needs a Python >= 3.10; $PYTHON names one, else the first that fits is taken.
set -eu

main() {
    [ -x .venv/bin/python ] || make_environment "$(find_python)"
    [ -x .venv/bin/uv ] || .venv/bin/python -m pip install -q --disable-pip-version-check uv
    install_with_uv "$@" || UV_SYSTEM_CERTS=1 UV_NATIVE_TLS=1 install_with_uv "$@" ||
        .venv/bin/python -m pip install -q --disable-pip-version-check "$@" || {
            cat .venv/uv.log >&2
            exit 1
        }
}

# uv is many times faster than pip, but reads none of pip's settings: where only those know the way
# to the index, pip does it. The second try is for networks with a certificate authority of their own.
install_with_uv() {
    VIRTUAL_ENV="$PWD/.venv" .venv/bin/uv pip install -q "$@" 2>.venv/uv.log
}

find_python() {
    for name in ${PYTHON:-python3 python3.13 python3.12 python3.11 python3.10 python3.14}; do
        if "$name" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
            command -v "$name"
            return
        fi
    done
    fail "no Python >= 3.10 was found; install one, or name it: make PYTHON=/path/to/python"
}

make_environment() {
    echo "making .venv with $1" >&2
    if "$1" -c 'import ensurepip' 2>/dev/null; then
        "$1" -m venv .venv
    elif command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
        echo "this Python has no venv: apt-get install python3-venv" >&2
        { apt-get update -qq && apt-get install -y -qq --no-install-recommends python3-venv; } >&2
        "$1" -m venv .venv
    else
        fail "$1 cannot make virtual environments; run: sudo apt-get install python3-venv"
    fi
}

fail() {
    echo "setup: $1" >&2
    exit 1
}

main "$@"
