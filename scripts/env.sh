# Sourced by scripts/test, scripts/demo and .ci/run from the project's directory: makes sure of Python, Java and .venv.
# Sets $python, the interpreter of .venv. Words go to standard error.

say() { printf '%s\n' "$*" >&2; }

# have_python COMMAND: is it Python 3.11 or later, with venv?
have_python() {
    "$1" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

find_python() {
    local candidate
    for candidate in ${PYTHON:-} python3.13 python3.12 python3.11 python3; do
        if have_python "$candidate"; then
            printf '%s' "$candidate"
            return
        fi
    done
    return 1
}

have_java() {
    local java=${JAVA_HOME:+$JAVA_HOME/bin/}java version
    version=$("$java" -version 2>&1 | sed -nE 's/.*version "(1\.)?([0-9]+).*/\2/p' | head -n 1) || return 1
    [[ -n $version && $version -ge 17 ]]
}

# available PACKAGE...: the packages apt knows; of several openjdk ones the first.
available() {
    local package java=
    for package in "$@"; do
        if [[ $package != openjdk-* ]]; then
            printf '%s ' "$package"
        elif [[ -z $java ]] && apt-cache show "$package" >/dev/null 2>&1; then
            java=$package
            printf '%s ' "$package"
        fi
    done
}

# offer WHAT DEBIAN FEDORA MACOS: install Debian packages when we may, else say what to install and give up. Of several
# openjdk packages one is enough.
offer() {
    local what=$1 debian=$2 fedora=$3 macos=$4 answer=no
    if [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null; then
        if [[ -n ${CI:-} ]]; then
            answer=yes
        elif [[ -t 0 ]]; then
            read -r -p "$what is missing. Install $debian with apt-get? [y/N] " answer
        fi
        if [[ $answer == [yY]* ]]; then
            apt-get update -qq >&2 || exit 1
            # shellcheck disable=SC2046,SC2086 # several packages
            DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $(available $debian) >&2 || exit 1
            return
        fi
    fi
    say "$what is missing. Install it, then run this again:"
    say "  Debian, Ubuntu:  sudo apt-get install ${debian// openjdk/ or openjdk}"
    say "  Fedora:          sudo dnf install $fedora"
    say "  macOS:           brew install $macos"
    exit 1
}

# make_venv: .venv holds exactly what the lock file says; made again when the lock file or the interpreter changed. Two at once: one waits.
make_venv() {
    local stamp=.venv/.lock-stamp wanted
    wanted=$(cat requirements-dev.lock pyproject.toml | cksum)
    python=.venv/bin/python
    if [[ -x $python && -f $stamp && $(<"$stamp") == "$wanted" ]]; then
        return
    fi
    say "Setting up .venv from requirements-dev.lock (PySpark is 490 MB: minutes the first time)"
    if ! have_python "$python"; then
        "$(find_python)" -m venv --clear .venv
    fi
    "$python" -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.lock >&2 || exit 1
    "$python" -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable . >&2 || exit 1
    printf '%s' "$wanted" >"$stamp"
}

find_python >/dev/null || offer "Python 3.11 or later (with venv)" "python3 python3-venv" python3 python@3.13
find_python >/dev/null || { say "This system's python3 is older than 3.11; set PYTHON to a newer one"; exit 1; }
have_java || offer "Java 17 or later" "openjdk-17-jre-headless openjdk-21-jre-headless" java-21-openjdk-headless openjdk@17
have_java || { say "There is still no Java 17 or later; set JAVA_HOME"; exit 1; }
exec 9<.
! command -v flock >/dev/null || flock 9
make_venv
exec 9<&-  # nothing that is started later holds the lock
