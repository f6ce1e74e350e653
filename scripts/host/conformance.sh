# shellcheck shell=bash
# Checks of untrusted modes, each in a container of its own that can only compute.

CHECK_SECONDS=210 # the program itself exits within three minutes
CHECK_CONTAINER=lockstep-conformance-$$
MOST_MEMORY=3g
MOST_TASKS=256 # processes and threads

# Refuses a mode that is neither a file nor built in.
check_mode() {
    local mode=$1 known
    if [[ $mode == *.py ]]; then
        [[ -r $mode && -f $mode ]] || refuse missing-file "cannot read $(shown "$mode"). Give a file that exists and that you can read."
    else
        mapfile -t known < <(modes_in extensions && modes_in app/sync/modes)
        [[ " ${known[*]} " == *" $mode "* ]] || refuse_name mode "$mode" "${known[@]}"
    fi
}

modes_in() { find "$1" -maxdepth 1 -name '[!_]*.py' -exec basename {} .py \; | sort; }

check_one() {
    local mode=$1 called=$2 code=0
    [[ ! -f extensions/$mode.py ]] || mode=extensions/$mode.py called=extensions/$called.py
    if [[ $mode == *.py ]]; then
        attend confined "$mode" - --called "$called" || code=$?
    else
        attend confined /dev/null "$mode" || code=$?
    fi
    case $code in
        0 | 1 | 2) exit "$code" ;;
        *) fail no-verdict "the check of $(shown "$mode") ended without a verdict: $(why_no_verdict "$code")." ;;
    esac
}

# The table of a folder's submissions. Ends with exit code 1 if any does not conform.
check_all() {
    local folder=${1%/} file row code failed=0 files=()
    for file in "$folder"/*.py "$folder"/*/*.py; do
        [[ ! -f $file ]] || files+=("$file")
    done
    ((${#files[@]} > 0)) || refuse missing-file "--all $(shown "$folder"): no file matches *.py or */*.py in this folder."
    echo 'submission,verdict,law broken,smallest case,seconds'
    temporary_file row
    for file in "${files[@]}"; do
        say "== ${file#"$folder"/}"
        code=0
        attend row_of "$file" "${file#"$folder"/}" "$row" || code=$?
        if ((code > 2)) || [[ $(wc -l <"$row") -ne 1 ]]; then
            attend row_of /dev/null "${file#"$folder"/}" "$row" --failed "$(why_no_verdict "$code")"
            code=1
        fi
        cat "$row"
        ((code == 0)) || failed=1
    done
    exit "$failed"
}

row_of() { confined "$1" - --table --called "$2" "${@:4}" >"$3"; }

why_no_verdict() {
    case $1 in
        124 | 137) echo "it took longer than $CHECK_SECONDS s, or used more than $MOST_MEMORY of memory" ;;
        *) echo "exit code $1" ;;
    esac
}

# The check of a file, passed on standard input because nothing of the host is mounted. The program is the first process
# of the container, without an init, so no signal from inside can end it.
confined() {
    local file=$1 engine=(docker)
    shift
    [[ ! ${DOCKER_THROUGH_SUDO:-} ]] || engine=(sudo --preserve-env docker) # timeout runs no function
    timeout --kill-after=5 "$CHECK_SECONDS" "${engine[@]}" run --rm --interactive --name "$CHECK_CONTAINER" \
        --network none --read-only --tmpfs /tmp:mode=1777,size=64m --user 65534:65534 \
        --cap-drop ALL --security-opt no-new-privileges --pids-limit "$MOST_TASKS" \
        --memory "$MOST_MEMORY" --memory-swap "$MOST_MEMORY" --ulimit core=0 --env GLIBC_TUNABLES= \
        "$LOCKSTEP_IMAGE" conformance "$@" <"$file" || {
        local code=$?
        docker rm --force "$CHECK_CONTAINER" >/dev/null 2>&1 || true
        return "$code"
    }
}

leave_conformance() {
    trap '' INT TERM HUP
    docker rm --force "$CHECK_CONTAINER" >/dev/null 2>&1 || true
    end_attended
    exit "$1"
}
