# shellcheck shell=bash
# The Compose project of this user and this checkout: its name, its lock, and other clusters on this machine.

CLAIM='' # the file that is locked on descriptor 9 while a run of this project is in progress

# Derived from user and folder, so that it is unique. Containers, network and volume carry this name.
name_project() {
    local user given
    user=$({ id -un 2>/dev/null || true; } | tr -cd 'A-Za-z0-9_.-')
    export USER=$user # compose.yaml labels the containers with it
    given=$(given COMPOSE_PROJECT_NAME)
    if [[ $given && $given != "$UNNAMED" ]]; then
        [[ $given =~ ^[a-z0-9][a-z0-9_-]{0,62}$ ]] ||
            refuse invalid-setting "invalid COMPOSE_PROJECT_NAME '$(shown "$given")'. Use at most 63 lower-case letters, digits, '_' and '-', beginning with a letter or digit."
        return
    fi
    user=$(tr '[:upper:]' '[:lower:]' <<<"$user" | tr -cd 'a-z0-9')
    COMPOSE_PROJECT_NAME=lockstep-${user:-user}-$(printf '%s %s' "$(id -u)" "$PWD" | cksum | awk '{ printf "%08x", $1 }')
    export COMPOSE_PROJECT_NAME
}

project_name() { given COMPOSE_PROJECT_NAME; }

# Refuses to start while the project has a run in progress. Removes the remains of a failed run.
claim_project() {
    local message
    [[ ! $CLAIM ]] || return 0 # already locked by this script
    message="project $(project_name) has a run in progress. Wait until it finishes, stop it with scripts/down, or use another project: COMPOSE_PROJECT_NAME=other $0"
    claim "$(project_name)" "$message"
    [[ ! $(containers) ]] || refuse run-in-progress "$message"
    [[ -z $(containers --all) ]] || remove_containers
}

claim() {
    CLAIM=$PWD/results/.claim-$1
    take_claim || { CLAIM='' && refuse run-in-progress "$2"; }
    at_exit release_project
}

release_project() {
    [[ ! $CLAIM ]] || rm -f "$CLAIM"
    CLAIM=''
    exec 9>&-
}

# The IDs of this project's running containers, or with --all of all. Docker is faster here than Compose.
containers() {
    docker ps --quiet --no-trunc --filter "label=com.docker.compose.project=$(project_name)" \
        --filter label=com.docker.compose.oneoff=False "$@"
}

# The kernel releases the lock when this script exits, even by SIGKILL: its children do not inherit the descriptor.
# Without flock, as on macOS, the file itself is the claim, and a killed script leaves it behind.
take_claim() {
    mkdir -p "${CLAIM%/*}" 2>/dev/null || true # somebody may have deleted results/
    while true; do
        if ! command -v flock >/dev/null; then
            (set -o noclobber && : >"$CLAIM") 2>/dev/null && return
            [[ ! -e $CLAIM ]] || { warn "if the script that created $CLAIM was killed, remove this file." && return 1; }
        elif { exec 9>>"$CLAIM" || exec 9<"$CLAIM"; } 2>/dev/null; then
            flock -n 9 || return 1
            [[ /dev/fd/9 -ef $CLAIM ]] || continue # its holder has removed it after it was opened here
            [[ ! -w $CLAIM ]] || return 0
            rm -f "$CLAIM" 2>/dev/null && continue # of another user, whose script was killed
        fi
        fail no-permission "$(id -un) cannot write to results/. Change its owner: sudo chown -R $(id -u):$(id -g) results"
    done
}

# Other clusters that run on this engine now, PROJECT:USER:CONTAINERS,...
neighbours() {
    docker ps --filter label=lockstep.user --format '{{.Label "com.docker.compose.project"}} {{.Label "lockstep.user"}}' |
        awk -v own="$(project_name)" '$1 != own { ranks[$1]++; gsub(/[^A-Za-z0-9_.-]/, "", $2); user[$1] = $2 }
            END { for (each in ranks) print each ":" user[each] ":" ranks[each] }' | sort | paste -sd , -
}
