# shellcheck shell=bash
# Messages of the scripts, exit codes, and what is done whenever a script ends.

LONGEST_SHOWN=60 # characters of a wrong value in a message

say() { printf '%s\n' "$*" >&2; }

warn() { printf 'warning: %s\n' "$*" >&2; }

# An error has a name, which stands for its kind: docs/troubleshooting.md explains each.
error() { printf 'error: [%s] %s\n' "$1" "$2" >&2; }

# Invalid input: nothing has been started.
refuse() {
    error "$@"
    exit 2
}

fail() {
    error "$@"
    exit 1
}

# Lets a function end this script after a signal, with the exit code that it is called with.
# shellcheck disable=SC2064
on_signals() {
    trap "$1 130" INT
    trap "$1 143" TERM HUP
}

# A text for a message: on one line, and not endless.
shown() {
    local text=$1
    ((${#text} <= LONGEST_SHOWN)) || text=${text:0:LONGEST_SHOWN}...
    [[ $text != *[[:cntrl:]]* ]] || text=$(printf '%q' "$text")
    printf '%s' "$text"
}

quietly() {
    local output
    output=$("$@" 2>&1) || {
        printf '%s\n' "$output" >&2
        return 1
    }
}

AT_EXIT=() # commands, quoted
AT_EXIT_OF='' # the shell that they belong to

# Registers a command for the end of this shell, after an error or Ctrl-C as well. A subshell does not inherit them.
at_exit() {
    [[ $AT_EXIT_OF == "$BASHPID" ]] || AT_EXIT=()
    AT_EXIT_OF=$BASHPID
    AT_EXIT+=("$(printf '%q ' "$@")")
    trap do_the_last EXIT
}

do_the_last() {
    local each
    for each in "${AT_EXIT[@]}"; do eval "$each"; done
}

# Leaves the name of a new file, which is removed when this script ends, in a variable.
temporary_file() {
    local new
    new=$(mktemp)
    at_exit rm -f "$new"
    printf -v "$1" '%s' "$new"
}

((BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1] >= 404)) ||
    fail outdated-software "bash $BASH_VERSION is too old: 4.4 or newer is needed. Install a newer one (macOS: brew install bash), or start the cluster with docker compose up."
