# shellcheck shell=bash disable=SC2034
# Runs functions of swarm_node.sh on the nodes, through SSH or a command of the user's choice.

SENT=(messages engine base_image settings project image cluster network swarm_node) # to a node, each time
USUAL_LIMIT=120 # seconds that a function may take on a node
LIMIT=$USUAL_LIMIT # of the next one; 0 for any time
KILL_SECONDS=10 # after the limit, for commands that ignore the first signal

HOSTS=()     # as the user named them, later in the order of their ranks
ADDRESSES=() # on the experiment network
WORK=''      # a private folder for the output of the nodes

# Sets TRANSPORT to a command called as `TRANSPORT HOST COMMAND...`. SSH never prompts, exits when the node is gone, and
# shares one connection among all calls to a node.
choose_transport() {
    WORK=$(mktemp -d /tmp/lockstep.XXXXXX) # short, because the path of a socket has at most 100 characters
    read -r -a TRANSPORT <<<"${LOCKSTEP_RSH:-ssh}"
    [[ ${TRANSPORT[0]##*/} == ssh ]] || return 0
    TRANSPORT+=(-o BatchMode=yes -o ConnectTimeout=15 -o ServerAliveInterval=10 -o ServerAliveCountMax=3
        -o StrictHostKeyChecking=accept-new -o ControlMaster=auto -o ControlPersist=120 -o "ControlPath=$WORK/%C")
}

close_transport() {
    local host
    if [[ ${TRANSPORT[0]##*/} == ssh ]]; then
        for host in "${HOSTS[@]}"; do
            "${TRANSPORT[@]}" -O exit "$host" 2>/dev/null || true
        done
    fi
    rm -rf "$WORK"
}

reach() { "${TRANSPORT[@]}" "$@" 9>&-; }

on() {
    local number=$1
    shift
    {
        echo 'set -euo pipefail'
        printf '%s=%q\n' COMPOSE_PROJECT_NAME "$(project_name)" PROJECT "$(project_name)" \
            EXPERIMENT_NETWORK "$(setting EXPERIMENT_NETWORK)" NETWORK "$(setting NETWORK)" \
            RANKS "${#HOSTS[@]}" NUMBER "$number" ADDRESS "${ADDRESSES[number]:-}" FIRST_ADDRESS "${ADDRESSES[0]:-}" \
            IMAGE "${IMAGE:-}" TERM "${TERM:-dumb}"
        [[ ! -e $WORK/settings ]] || cat "$WORK/settings"
        cat "${SENT[@]/#/"$WORK/parts/"}"
        printf '%q ' "$@"
        echo '</dev/null' # the rest of this script is its standard input
    } | reach "${HOSTS[number]}" timeout --kill-after="$KILL_SECONDS" "$LIMIT" bash -s
}

# A function on all nodes at once, or on those with the numbers in ONLY. The output of each is in $WORK/NUMBER.out and
# .err; $WORK/NUMBER.failed exists if it failed.
on_all() {
    local number failed=0 pids=()
    rm -f "$WORK"/*.out "$WORK"/*.err "$WORK"/*.failed
    for number in ${ONLY:-"${!HOSTS[@]}"}; do
        on "$number" "$@" >"$WORK/$number.out" 2>"$WORK/$number.err" &
        pids[number]=$!
    done
    for number in "${!pids[@]}"; do
        wait "${pids[number]}" || {
            echo $? >"$WORK/$number.failed"
            failed=1
        }
    done
    return "$failed"
}

# The same. If it fails on a node, this script fails with the errors of each.
must_on_all() {
    local what=$1
    shift
    attend on_all "$@" || {
        error node-failed "$what:"
        list_failures
        exit 1
    }
}

list_failures() {
    local number
    for number in $(failed_ones); do
        say "  ${HOSTS[number]}: $(error_of "$number")"
    done
}

failed_ones() { find "$WORK" -name '*.failed' | sed 's|.*/||; s/[.]failed$//' | sort -n; }

error_of() {
    local number=$1 words
    words=$(sed -E -e 's/^error: //' -e '2,$s/^/    /' "$WORK/$number.err" 2>/dev/null | tail -n 12)
    case ${words:+said}$(<"$WORK/$number.failed") in
        124) words="no answer within $LIMIT s" ;;
        137) words="it was killed, or did not exit $KILL_SECONDS s after its limit of $LIMIT s" ;;
    esac
    printf '%s' "${words:-exit code $(<"$WORK/$number.failed")}"
}

# The given settings, and the parts of the scripts that run on the nodes.
write_settings() {
    local name value
    mkdir -p "$WORK/parts"
    for name in "${SENT[@]}"; do
        cp "scripts/host/$name.sh" "$WORK/parts/$name"
    done
    {
        echo 'PASSED=()'
        for name in $(known_settings); do
            value=$(given "$name")
            [[ ! $value ]] || printf 'export %s=%q\nPASSED+=(--env %s)\n' "$name" "$value" "$name"
        done
    } >"$WORK/settings"
}
