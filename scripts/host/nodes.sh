# shellcheck shell=bash disable=SC2034
# A run on several nodes, one rank on each: from checks of all nodes to the records in results/ here.

HEARTBEAT_MARGIN_SECONDS=60 # by which the Swarm's timeout exceeds the ranks'
USUAL_PEER_TIMEOUT=300
LONG=3600                   # seconds for downloads, builds and transfers
RECONNECT_SECONDS=600
RETRY_SECONDS=3
SILENCE_SECONDS=60          # within which a broken connection is noticed
LOGINS_AT_ONCE=8            # an SSH server turns some away if more than ten arrive at once
MOST_CLOCK_SECONDS=60       # by which the nodes' clocks may differ, because the Swarm uses certificates

ready_settings() {
    local name
    take_arguments "$@"
    [[ ${WORKERS:-} ]] || export WORKERS=$((${#HOSTS[@]} - 1))
    check_compose_settings
    ((10#$WORKERS == ${#HOSTS[@]} - 1)) ||
        refuse conflicting-settings "WORKERS=$WORKERS contradicts the number of nodes given, ${#HOSTS[@]}: each node runs one rank. Unset WORKERS."
    [[ ! -e .env ]] || command docker compose version >/dev/null 2>&1 ||
        refuse docker-missing "cannot read .env: Docker Compose is not installed here. Give the settings as arguments, and move .env away."
    read_dotenv
    check_compose_settings
    name_project
    for name in LINK_RATE LINK_RATE_BY_RANK LINK_DELAY LINK_LOSS; do
        [[ ! $(given "$name") ]] ||
            refuse conflicting-settings "$name=$(shown "$(given "$name")") is not supported on nodes: it would shape the node's own interface. Unset it. To emulate a network on one machine, use scripts/up."
    done
    [[ ! $(given DATA_FOLDER) ]] ||
        refuse conflicting-settings "DATA_FOLDER=$(shown "$(given DATA_FOLDER)") is not supported on nodes. Unset it, and put archives into /var/tmp/$(project_name)/data on each node."
    [[ $(given BACKEND) != mpi ]] ||
        refuse conflicting-settings 'BACKEND=mpi is not supported on nodes, where no mpirun starts the ranks. Unset it. For OpenMPI on one machine, use scripts/up BACKEND=mpi.'
    name=$(given RUN_NAME)
    [[ ! $name || $name == */* ]] || can_resume_here "$name" || refuse_taken "$name"
    MAX_RESTARTS=$((10#$(setting MAX_RESTARTS)))
    export MAX_RESTARTS
}

# Whether no folder has this name, or one of a run that the nodes can resume.
can_resume_here() {
    [[ ! -e results/$1 ]] || { [[ $(given RESUME) != never ]] && grep -qs '"complete": false' "results/$1/summary.json"; }
}

refuse_taken() {
    refuse run-exists "RUN_NAME=$(shown "$1"): results/$1 already exists, and a run never overwrites another. Choose another name, or move that folder away."
}

# Checks all nodes at once and reports every one that cannot take part. Sorts them by address: rank 0 is first.
look_at_nodes() {
    local number address bad='' order=()
    attend on_all look || true
    for number in "${!HOSTS[@]}"; do
        bad+=$(problems_of "$number")
        address=$(fact address "$number")
        [[ ! $address ]] || order+=("$(number_of "$address") $number $address")
    done
    bad+=$(of_all_together "${order[@]}")
    [[ ! $bad ]] || fail node-not-ready "these nodes cannot take part:$bad"
    local hosts=("${HOSTS[@]}") rank=0
    while read -r _ number address; do
        mv "$WORK/$number.out" "$WORK/$rank.look"
        HOSTS[rank]=${hosts[number]}
        ADDRESSES[rank]=$address
        ((++rank))
    done < <(printf '%s\n' "${order[@]}" | sort -n)
}

fact() { sed -n "s/^$1 //p" "$WORK/$2.out"; }

problems_of() {
    local number=$1 problem
    if [[ -e $WORK/$number.failed ]]; then
        printf '\n  %s: %s' "${HOSTS[number]}" "$(error_of "$number")"
    fi
    while read -r problem; do
        printf '\n  %s: %s' "${HOSTS[number]}" "$problem"
    done < <(fact problem "$number")
}

of_all_together() {
    local number earliest='' latest='' clock address seen=' '
    while read -r _ number address; do
        [[ $seen != *" $address "* ]] || printf '\n  %s: its address %s is also the address of another given node. Give each node once' "${HOSTS[number]}" "$address"
        seen+="$address "
        clock=$(fact clock "$number")
        ((clock >= ${earliest:-$clock})) || earliest=$clock
        ((clock <= ${latest:-$clock})) || latest=$clock
        earliest=${earliest:-$clock} latest=${latest:-$clock}
    done < <(printf '%s\n' "$@" | sed '/^$/d')
    ((${latest:-0} - ${earliest:-0} <= MOST_CLOCK_SECONDS)) ||
        printf '\n  all: their clocks differ by %s s, too much for a Swarm. Synchronise them, with chrony for example' $((latest - earliest))
}

list_nodes() {
    local rank
    say 'Nodes by rank:'
    for rank in "${!HOSTS[@]}"; do
        sed -n -e 's/^interfaces \([^ ]*\) \(.*\)/on \1, logins on \2/p' -e 's/^cpu //p' -e 's/^engine /Docker /p' -e 's/^free \(.*\)/\1 MiB free/p' "$WORK/$rank.look" |
            paste -sd ';' - | sed "s/;/; /g; s|^|  rank $rank  ${HOSTS[rank]}  ${ADDRESSES[rank]} |" >&2
    done
    (($(sed -n 's/^cpu //p' "$WORK"/*.look | sort -u | wc -l) == 1)) ||
        warn 'the nodes have different CPUs. The slowest determines the time of a step.'
}

# Docker and a Swarm of exactly these nodes. An existing one is used as it is.
ready_nodes() {
    local rank ids=() token patience whole=yes
    LIMIT=$LONG must_on_all 'cannot prepare these nodes' ready
    for rank in "${!HOSTS[@]}"; do
        ids[rank]=$(tail -n 1 "$WORK/$rank.out")
        [[ ${ids[rank]} ]] || whole=no
    done
    if [[ $whole == no ]] || ! attend on 0 swarm_is_whole "${ids[@]}"; then
        say 'Forming the Swarm'
        must_on_all 'cannot remove these nodes from their Swarm' leave_swarm
        attend on 0 found_swarm >"$WORK/swarm" || fail node-failed "cannot initialise a Swarm on ${HOSTS[0]}. The reason is above."
        token=$(tail -n 1 "$WORK/swarm")
        ids[0]=$(head -n 1 "$WORK/swarm")
        if ((${#HOSTS[@]} > 1)); then
            ONLY=$(seq -s ' ' 1 $((${#HOSTS[@]} - 1))) must_on_all "cannot add these nodes to the Swarm at ${ADDRESSES[0]}" join_swarm "$token"
        fi
        for ((rank = 1; rank < ${#HOSTS[@]}; rank++)); do
            ids[rank]=$(tail -n 1 "$WORK/$rank.out")
        done
    fi
    patience=$(given PEER_TIMEOUT)
    [[ $patience =~ ^[0-9]{1,6}([.][0-9]*)?$ ]] || patience=$USUAL_PEER_TIMEOUT # the program refuses an invalid number
    attend on 0 settle_swarm $((10#${patience%.*} + HEARTBEAT_MARGIN_SECONDS)) || fail node-failed "cannot configure the Swarm on ${HOSTS[0]}. The reason is above."
    NODES_IN_ORDER=$(IFS=, && echo "${ADDRESSES[*]}")
    [[ $(setting NETWORK) == host ]] || NODES_IN_ORDER=$(IFS=, && echo "${ids[*]}")
}

# The first node builds the image from these sources, unless it has it, and sends it to those that lack it.
ready_images() {
    local revision lacking ONLY=''
    revision=$(git describe --always --dirty 2>/dev/null) || revision=''
    COPYFILE_DISABLE=1 tar -cf - --exclude __pycache__ .dockerignore app docker scripts/host >"$WORK/sources.tar"
    attend send_sources || fail node-failed "cannot send the sources to ${HOSTS[0]}. The reason is above."
    LIMIT=$LONG attend on 0 make_image "$revision" >"$WORK/image" || fail node-failed "cannot build the image on ${HOSTS[0]}. The reason is above."
    IMAGE=$(tail -n 1 "$WORK/image")
    attend on_all image_id "$IMAGE" || true # its name is a hash of its sources; engines of other versions give it other IDs
    lacking=$(failed_ones)
    if [[ $lacking ]]; then
        say "Sending the image from ${HOSTS[0]} to $(for each in $lacking; do echo "${HOSTS[each]}"; done | paste -sd , - | sed 's/,/, /g')"
        ssh-keygen -q -t ed25519 -N '' -f "$WORK/key"
        LIMIT=$LONG attend on 0 offer_image "$(<"$WORK/key.pub")" >"$WORK/offer" ||
            fail node-failed "cannot offer the image on ${HOSTS[0]}. The reason is above."
        while read -r ONLY; do
            LIMIT=$LONG must_on_all 'cannot load the image on these nodes' fetch_image "$(<"$WORK/key")" "$(<"$WORK/offer")"
        done < <(xargs -n "$LOGINS_AT_ONCE" <<<"$lacking")
        attend on 0 withdraw_image
    fi
    must_on_all 'cannot tag the image on these nodes' use_image "$IMAGE" "lockstep:of-$(project_name)"
}

send_sources() {
    local folder
    folder=/var/tmp/$(project_name)/source
    reach "${HOSTS[0]}" "rm -rf $folder && mkdir -p $folder && tar -xf - -C $folder" <"$WORK/sources.tar"
}

# Checks the settings on the first node, then prepares the data set on every node. The first one also opens the run,
# RUN, or finds the one to resume.
prepare_nodes() {
    local code=0 goes_on
    attend on 0 one_shot --network none "$IMAGE" check "--variables=$(variables)" || code=$?
    ((code == 0)) || exit "$((code == 2 ? 2 : 1))"
    STARTED=yes CODE=130 # until the exit code of the run is known
    LIMIT=$LONG attend on_all prepare || {
        error node-failed 'cannot prepare the run on these nodes:'
        list_failures
        [[ ! -e $WORK/0.failed ]] || code=$(<"$WORK/0.failed")
        attend on_all forget_run '' || true
        exit "$((code == 2 ? 2 : 1))"
    }
    read -r RUN goes_on < <(on 0 prepared_run) || true
    [[ $RUN =~ ^[A-Za-z0-9][A-Za-z0-9._-]*$ ]] || fail node-failed "cannot read the name of the run from ${HOSTS[0]}. Repeat the command."
    if [[ $goes_on != true && -e results/$RUN ]]; then
        attend on 0 forget_run "$RUN" || true
        refuse_taken "$RUN"
    fi
    cat "$WORK/0.out"
}

# From the start of all ranks to rank 0's exit code, in CODE.
run_ranks_on_nodes() {
    local columns=''
    attend on 0 deploy "$NODES_IN_ORDER" "$USER" || {
        attend on_all clear_all || true
        fail run-failed 'cannot start the ranks. The reason is above.'
    }
    [[ ! -t 1 ]] || columns=$(stty size </dev/tty | cut -d ' ' -f 2)
    attend follow_to_the_end "$columns" || true
    attend on 0 exit_code_of_rank0 "$RUN" >"$WORK/code" ||
        fail node-unreachable "cannot reach ${HOSTS[0]} any more, so the outcome of the run is unknown. The ranks may still be running. To stop them and remove their records from the nodes: $0 --down ${HOSTS[*]}"
    CODE=$(tail -n 1 "$WORK/code")
}

# Shows rank 0's lines until it has exited. A broken connection is re-established: the ranks run without it.
follow_to_the_end() {
    local columns=$1 since='' lost state
    until LIMIT=0 on 0 follow_rank0 "$RUN" "$columns" "$since"; do
        lost=$SECONDS
        say "Lost the connection to ${HOSTS[0]}. The ranks keep running. Reconnecting for up to $((RECONNECT_SECONDS / 60)) minutes"
        until state=$(sleep "$RETRY_SECONDS" && on 0 state_of_rank0 2>/dev/null); do
            ((SECONDS - lost < RECONNECT_SECONDS)) || return 1
        done
        say "Reconnected to ${HOSTS[0]}. Lines of rank 0 may be repeated or missing here:"
        since=$((SECONDS - lost + SILENCE_SECONDS))
        [[ $state == running ]] || columns='' # its last lines, without a bar
    done
}

# After a failed run: how each rank exited, with its last lines.
list_ranks() {
    local rank
    attend on_all describe_rank || true
    for rank in "${!HOSTS[@]}"; do
        if [[ -e $WORK/$rank.failed ]]; then
            say "rank $rank on ${HOSTS[rank]} (${ADDRESSES[rank]}): $(error_of "$rank")"
        elif [[ -s $WORK/$rank.out ]] && ((rank > 0)); then
            say "rank $rank on ${HOSTS[rank]} (${ADDRESSES[rank]}): $(<"$WORK/$rank.out")"
        fi
    done
}

# Copies the records here, atomically. Rank 0 has collected those of a run that finished. If the run failed, each node has
# its rank's, and rank 0 may have those of an earlier attempt.
collect_records() {
    local rank any place new=results/.$RUN.new old=results/.$RUN.old
    place=/var/tmp/$(project_name)/results/$RUN
    if ((CODE != 0)); then
        for ((rank = 1; rank < ${#HOSTS[@]}; rank++)); do
            reach "${HOSTS[rank]}" "cat $place/rank-$rank.jsonl 2>/dev/null" >"$WORK/records" </dev/null || true
            [[ ! -s $WORK/records ]] || reach "${HOSTS[0]}" "mkdir -p $place && cat >$place/rank-$rank.jsonl" <"$WORK/records" || return 1
        done
        any=$(reach "${HOSTS[0]}" "cat $place/rank-*.jsonl 2>/dev/null | head -c 1" </dev/null) || return 1
        [[ $any ]] || return 0 # no rank has written a record
        on 0 one_shot --network none "$IMAGE" report "$RUN" || true
    fi
    rm -rf "$new" "$old"
    mkdir "$new"
    reach "${HOSTS[0]}" "tar --exclude=./checkpoint -cf - -C $place ." </dev/null | tar --no-same-owner -xf - -C "$new" &&
        { [[ ! -e results/$RUN ]] || mv "results/$RUN" "$old"; } && # its records before it was resumed
        mv "$new" "results/$RUN" &&
        rm -rf "$old" &&
        ln -sfn "$RUN" results/latest
}

# Removes the ranks. Their records stay on the nodes until they have been copied, and the states of a resumable run too.
end_ranks() {
    on_all clear_all || list_failures
    [[ ! ${RUN:-} ]] || collect_records || {
        warn "cannot fetch all records. They are on the nodes, in /var/tmp/$(project_name)/results/$RUN."
        return 0
    }
    if [[ ${RUN:-} && $(given RESUME) != never ]] && ((CODE != 0)) && on 0 is_resumable "$RUN"; then
        say "A checkpoint is saved on the nodes. The same command resumes this run. To remove it: $0 --down ${HOSTS[*]}"
    else
        on_all forget_run "${RUN:-}" || true
    fi
}

# Called by end_early of cluster.sh, possibly during a call with another limit or none.
end_run() { [[ ! ${STARTED:-} ]] || LIMIT=$USUAL_LIMIT end_ranks; }

run_on_nodes() {
    ready_images
    prepare_nodes
    run_ranks_on_nodes
    ((CODE == 0)) || list_ranks
    if chosen --keep; then
        attend collect_records || warn 'cannot fetch all records.'
        say "The exited ranks are kept. On each node, use docker ps --all and docker logs. The records are in /var/tmp/$(project_name)."
    else
        attend end_ranks
    fi
    ((CODE == 0)) || say "Rank 0 exited with code $CODE."
    exit "$CODE"
}
