# Sourced by the other scripts: leaves in PYTHON a Python with the package and the extras named.
#
# use_environment EXTRAS    e.g. use_environment "[test]"; "" for the package alone
#
# An active virtual environment is used, else .venv is made. Nothing is installed again while
# pyproject.toml and constraints.txt stay the same. PyTorch is installed first and alone, unless it is there: asked
# for together with the rest, pip may choose another build. constraints.txt pins the rest.

TORCH="torch==2.13.0"

find_python() {
    local candidate
    for candidate in python3.11 python3.12 python3.13 python3 python; do
        if command -v "$candidate" >/dev/null &&
            "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            echo "$candidate"
            return
        fi
    done
    echo "no Python of version 3.11 or later was found" >&2
    return 1
}

use_environment() {
    local extras="$1" environment="${VIRTUAL_ENV:-$PWD/.venv}" python stamp made_from
    if [ ! -x "$environment/bin/python" ]; then
        python="$(find_python)"
        "$python" -m venv "$environment"
    fi
    PYTHON="$environment/bin/python"
    stamp="$environment/.fedunlearn${extras}"
    made_from="$PWD $(cat pyproject.toml constraints.txt | cksum)"
    if [ "$(cat "$stamp" 2>/dev/null)" != "$made_from" ]; then
        "$PYTHON" -c 'import torch' 2>/dev/null || "$PYTHON" -m pip install --quiet "$TORCH"
        "$PYTHON" -m pip install --quiet --constraint constraints.txt --editable ".$extras"
        echo "$made_from" >"$stamp"
    fi
    export PATH="$environment/bin:$PATH"
}
