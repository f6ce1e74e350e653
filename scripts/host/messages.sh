# shellcheck shell=bash
# Messages of the scripts, exit codes, and what is done whenever a script ends.

say() { printf '%s\n' "$*" >&2; }

warn() { printf 'warning: %s\n' "$*" >&2; }

# Bad input: nothing has been started.
refuse() {
    printf 'error: %s\n' "$*" >&2
    exit 2
}

fail() {
    printf 'error: %s\n' "$*" >&2
    exit 1
}

# Runs a long command and shows its output only if it fails.
quietly() {
    local output
    output=$("$@" 2>&1) || {
        printf '%s\n' "$output" >&2
        return 1
    }
}

AT_EXIT=() # commands, quoted
AT_EXIT_OF='' # the shell that they belong to

# Lets a command run when this shell ends, after an error or Ctrl-C as well. What a subshell inherits is not its own.
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

# Leaves the name of a new file, which this script's end removes, in a variable.
temporary_file() {
    local new
    new=$(mktemp)
    at_exit rm -f "$new"
    printf -v "$1" '%s' "$new"
}

((BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1] >= 404)) ||
    fail "these scripts need bash 4.4 or newer, and this is $BASH_VERSION. Install a newer one (macOS: brew install bash), or do without them: docker compose up."
