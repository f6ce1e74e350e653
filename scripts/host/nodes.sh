# shellcheck shell=bash disable=SC2034
# A run on several nodes, one rank on each: from a look at all of them to the records in results/ here.

HEARTBEAT_MARGIN_SECONDS=60 # by which the Swarm's patience is longer than the ranks'
USUAL_PEER_TIMEOUT=300
LONG=3600                   # seconds for what downloads, builds or sends
RECONNECT_SECONDS=600
RETRY_SECONDS=3
SILENCE_SECONDS=60          # after which at most a broken connection is noticed
MOST_CLOCK_SECONDS=60       # by which the nodes' clocks may differ: the Swarm has certificates

# Everything before the first connection.
ready_settings() {
    local name
    take_arguments "$@"
    [[ ${WORKERS:-} ]] || export WORKERS=$((${#HOSTS[@]} - 1))
    check_compose_settings
    ((10#$WORKERS == ${#HOSTS[@]} - 1)) ||
        refuse "WORKERS=$WORKERS with ${#HOSTS[@]} node(s): each node has one rank. Unset WORKERS."
    [[ ! -e .env ]] || command docker compose version >/dev/null 2>&1 ||
        refuse ".env is read by Docker Compose, which is not here. Give its settings as arguments, and move it away."
    read_dotenv
    check_compose_settings
    name_project
    for name in LINK_RATE LINK_RATE_BY_RANK LINK_DELAY LINK_LOSS; do
        [[ ! $(given "$name") ]] ||
            refuse "$name=$(shown "$(given "$name")"): not allowed on nodes, whose links are measured as they are: it would shape the node's own interface. To emulate a network on one machine: scripts/up."
    done
    [[ ! $(given DATA_FOLDER) ]] ||
        refuse "DATA_FOLDER=$(shown "$(given DATA_FOLDER)"): not allowed on nodes, which have their own. Unset it, and put archives into /var/tmp/$(project_name)/data on each node."
    [[ $(given BACKEND) != mpi ]] ||
        refuse 'BACKEND=mpi: not allowed on nodes, where no mpirun starts the ranks. Allowed: gloo. For OpenMPI on one machine: scripts/up BACKEND=mpi.'
    name=$(given RUN_NAME)
    [[ ! $name || $name == */* ]] || may_go_on_here "$name" || refuse_taken "$name"
    MAX_RESTARTS=$((10#$(setting MAX_RESTARTS)))
    export MAX_RESTARTS
}

# Whether a folder of this name is none, or may be that of a run with which the nodes go on.
may_go_on_here() {
    [[ ! -e results/$1 ]] || { [[ $(given RESUME) != never ]] && grep -qs '"complete": false' "results/$1/summary.json"; }
}

refuse_taken() {
    refuse "RUN_NAME=$(shown "$1"): results/$1 exists already, and a run never overwrites another. Choose another name, or move that folder away."
}

# One run of this checkout on nodes at a time.
claim_nodes() {
    CLAIM=$PWD/results/.claim-$(project_name)-nodes
    if ! take_claim; then
        CLAIM=''
        refuse "a run on nodes is in progress from this folder. Wait for it, or end it with Ctrl-C."
    fi
}

end_on_signals() {
    at_exit close_transport
    at_exit release_project
    trap 'end_early 130' INT
    trap 'end_early 143' TERM HUP
}

# Asks all nodes at once; names all that cannot take part, each with its own words. Brings them into the order of their
# addresses: rank 0 has the first.
look_at_nodes() {
    local number address bad='' order=()
    attend on_all look || true
    for number in "${!HOSTS[@]}"; do
        bad+=$(problems_of "$number")
        address=$(fact address "$number")
        [[ ! $address ]] || order+=("$(number_of "$address") $number $address")
    done
    bad+=$(of_all_together "${order[@]}")
    [[ ! $bad ]] || fail "these nodes cannot take part:$bad"
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
        printf '\n  %s: %s' "${HOSTS[number]}" "$(words_of "$number")"
    fi
    while read -r problem; do
        printf '\n  %s: %s' "${HOSTS[number]}" "$problem"
    done < <(fact problem "$number")
}

# The same node twice, and clocks that are far apart.
of_all_together() {
    local number earliest='' latest='' clock address seen=' '
    while read -r _ number address; do
        [[ $seen != *" $address "* ]] || printf '\n  %s: %s is the address of another of these nodes too' "${HOSTS[number]}" "$address"
        seen+="$address "
        clock=$(fact clock "$number")
        ((clock >= ${earliest:-$clock})) || earliest=$clock
        ((clock <= ${latest:-$clock})) || latest=$clock
        earliest=${earliest:-$clock} latest=${latest:-$clock}
    done < <(printf '%s\n' "$@" | sed '/^$/d')
    ((${latest:-0} - ${earliest:-0} <= MOST_CLOCK_SECONDS)) ||
        printf '\n  all: their clocks differ by %s s, and a Swarm needs clocks that agree: set them, by chrony for example' $((latest - earliest))
}

# The table of what was found.
tell_nodes() {
    local rank
    say "The nodes, by rank:"
    for rank in "${!HOSTS[@]}"; do
        sed -n -e 's/^interfaces \([^ ]*\) \(.*\)/on \1, logins on \2/p' -e 's/^cpu //p' -e 's/^engine /Docker /p' -e 's/^free \(.*\)/\1 MiB free/p' "$WORK/$rank.look" |
            paste -sd ';' - | sed "s/;/; /g; s|^|  rank $rank  ${HOSTS[rank]}  ${ADDRESSES[rank]} |" >&2
    done
    (($(sed -n 's/^cpu //p' "$WORK"/*.look | sort -u | wc -l) == 1)) ||
        warn 'the nodes have different CPUs: the slowest holds up all others.'
}

# Docker and a Swarm of exactly these nodes. One that is there already is taken as it is.
ready_nodes() {
    local rank ids=() token patience whole=yes
    LIMIT=$LONG must_on_all 'these nodes could not be readied' ready
    for rank in "${!HOSTS[@]}"; do
        ids[rank]=$(tail -n 1 "$WORK/$rank.out")
        [[ ${ids[rank]} ]] || whole=no
    done
    if [[ $whole == no ]] || ! attend on 0 swarm_is_whole "${ids[@]}"; then
        say 'Forming the Swarm'
        must_on_all 'these nodes could not leave their Swarm' leave_swarm
        attend on 0 found_swarm >"$WORK/swarm" || fail "${HOSTS[0]} could not found a Swarm; the reason stands above."
        token=$(tail -n 1 "$WORK/swarm")
        ids[0]=$(head -n 1 "$WORK/swarm")
        if ((${#HOSTS[@]} > 1)); then
            ONLY=$(seq -s ' ' 1 $((${#HOSTS[@]} - 1))) must_on_all "these nodes could not join the Swarm at ${ADDRESSES[0]}" join_swarm "$token"
        fi
        for ((rank = 1; rank < ${#HOSTS[@]}; rank++)); do
            ids[rank]=$(tail -n 1 "$WORK/$rank.out")
        done
    fi
    patience=$(given PEER_TIMEOUT)
    [[ $patience =~ ^[0-9]{1,6}([.][0-9]*)?$ ]] || patience=$USUAL_PEER_TIMEOUT # the program refuses what is no number
    attend on 0 settle_swarm $((10#${patience%.*} + HEARTBEAT_MARGIN_SECONDS)) || fail "the Swarm does not take its settings; the reason stands above."
    NODES_IN_ORDER=$(IFS=, && echo "${ADDRESSES[*]}")
    [[ $(setting NETWORK) == host ]] || NODES_IN_ORDER=$(IFS=, && echo "${ids[*]}")
}

# The first node builds the image from these sources, unless it has it, and hands it to those that lack it.
ready_images() {
    local revision lacking port sum
    revision=$(git describe --always --dirty 2>/dev/null) || revision=''
    COPYFILE_DISABLE=1 tar -cf - --exclude __pycache__ .dockerignore app docker scripts/host >"$WORK/sources.tar"
    attend send_sources || fail "the sources could not be sent to ${HOSTS[0]}; the reason stands above."
    LIMIT=$LONG attend on 0 make_image "$revision" >"$WORK/image" || fail "${HOSTS[0]} could not build the image; the reason stands above."
    IMAGE=$(tail -n 1 "$WORK/image")
    attend on_all has_image || true
    lacking=$(failed_ones)
    if [[ $lacking ]]; then
        say "Sending the image from ${HOSTS[0]} to $(for each in $lacking; do echo "${HOSTS[each]}"; done | paste -sd , - | sed 's/,/, /g')"
        LIMIT=$LONG attend on 0 serve_image >"$WORK/port" || fail "${HOSTS[0]} could not offer the image; the reason stands above."
        read -r port sum < <(tail -n 1 "$WORK/port")
        ONLY=$lacking LIMIT=$LONG must_on_all 'these nodes did not get the image' load_image "$port" "$sum"
        attend on 0 stop_serving_image
    fi
    must_on_all 'these nodes could not name the image' keep_image
}

send_sources() {
    local folder
    folder=/var/tmp/$(project_name)/source
    reach "${HOSTS[0]}" "rm -rf $folder && mkdir -p $folder && tar -xf - -C $folder" <"$WORK/sources.tar"
}

# Checks the settings on the first node, then lets every node make its data set. The first one also opens the run, RUN,
# or finds the one to go on with.
prepare_nodes() {
    local code=0 goes_on
    attend on 0 check_settings "$(variables)" || code=$?
    ((code == 0)) || exit "$((code == 2 ? 2 : 1))"
    STARTED=yes CODE=130 # until it is known how the run ended
    LIMIT=$LONG attend on_all prepare || {
        say 'error: these nodes could not prepare the run:'
        tell_failures
        [[ ! -e $WORK/0.failed ]] || code=$(<"$WORK/0.failed")
        attend on_all forget_run '' || true
        exit "$((code == 2 ? 2 : 1))"
    }
    read -r RUN goes_on < <(on 0 prepared_run) || true
    [[ $RUN =~ ^[A-Za-z0-9][A-Za-z0-9._-]*$ ]] || fail "${HOSTS[0]} does not say which run it has prepared. Start again."
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
        fail 'the ranks could not be started; the reason stands above.'
    }
    [[ ! -t 1 ]] || columns=$(stty size </dev/tty | cut -d ' ' -f 2)
    attend follow_to_the_end "$columns" || true
    attend on 0 exit_code_of_rank0 "$RUN" >"$WORK/code" ||
        fail "${HOSTS[0]} cannot be reached any more, so how the run ended is not known. The ranks may still run: $0 --down ${HOSTS[*]} ends them."
    CODE=$(tail -n 1 "$WORK/code")
}

# Shows rank 0's lines until it has ended. A connection that breaks meanwhile, as when this machine was asleep, is made
# again: the ranks need none.
follow_to_the_end() {
    local columns=$1 since='' lost state
    until LIMIT=0 on 0 follow_rank0 "$RUN" "$columns" "$since"; do
        lost=$SECONDS
        say "The connection to ${HOSTS[0]} is lost, and the ranks go on without it. Trying for $((RECONNECT_SECONDS / 60)) minutes to make it again."
        until state=$(sleep "$RETRY_SECONDS" && on 0 state_of_rank0 2>/dev/null); do
            ((SECONDS - lost < RECONNECT_SECONDS)) || return 1
        done
        say "Connected to ${HOSTS[0]} again. Lines of rank 0 may come twice or be missing here:"
        since=$((SECONDS - lost + SILENCE_SECONDS))
        [[ $state == running ]] || columns='' # its last lines, without a bar
    done
}

# How the ranks ended where the run failed: each node's own last lines.
tell_ranks() {
    local rank
    attend on_all tell || true
    for rank in "${!HOSTS[@]}"; do
        if [[ -e $WORK/$rank.failed ]]; then
            say "rank $rank on ${HOSTS[rank]} (${ADDRESSES[rank]}): $(words_of "$rank")"
        elif [[ -s $WORK/$rank.out ]] && ((rank > 0)); then
            say "rank $rank on ${HOSTS[rank]} (${ADDRESSES[rank]}): $(<"$WORK/$rank.out")"
        fi
    done
}

# Records that did not reach rank 0 are fetched where they were written: of a run that failed all, because those of an
# earlier attempt may have reached it. Then all of them come here, whole or not at all.
bring_home() {
    local rank missing fetched found=no place
    place=/var/tmp/$(project_name)/results/$RUN
    missing=$(on 0 missing_records "$RUN") || return 1
    fetched=$missing
    ((CODE == 0)) || fetched=$(seq "${#HOSTS[@]}" | sed '$d')
    for rank in $fetched; do
        reach "${HOSTS[rank]}" "test ! -s $place/rank-$rank.jsonl || cat $place/rank-$rank.jsonl" >"$WORK/records" </dev/null || true
        [[ -s $WORK/records ]] || continue
        reach "${HOSTS[0]}" "mkdir -p $place && cat >$place/rank-$rank.jsonl" <"$WORK/records" || return 1
        found=yes
    done
    if [[ $missing == 0* && $found == no ]]; then
        return 0 # no rank has written anything
    fi
    if [[ $found == yes ]] || ((CODE != 0)); then
        on 0 report_run "$RUN" >"$WORK/report" || true
        ((CODE == 0)) || cat "$WORK/report"
    fi
    rm -rf "$WORK/results"
    mkdir "$WORK/results"
    reach "${HOSTS[0]}" "tar --exclude=$RUN/checkpoint -cf - -C ${place%/*} $RUN" </dev/null | tar -xf - -C "$WORK/results" &&
        rm -rf "results/.$RUN.new" "results/.$RUN.old" &&
        cp -R "$WORK/results/$RUN" "results/.$RUN.new" &&
        { [[ ! -e results/$RUN ]] || mv "results/$RUN" "results/.$RUN.old"; } && # what it had recorded before it went on
        mv "results/.$RUN.new" "results/$RUN" &&
        rm -rf "results/.$RUN.old" &&
        ln -sfn "$RUN" results/latest
}

# Ends what is left of the ranks. Their records stay on the nodes until they are here, and with them the states of a run
# that can go on.
end_ranks() {
    on_all clear_all || tell_failures
    [[ ! ${RUN:-} ]] || bring_home || {
        warn "not all records could be fetched. They are on the nodes, in /var/tmp/$(project_name)/results/$RUN."
        return 0
    }
    if [[ ${RUN:-} && $(given RESUME) != never ]] && ((CODE != 0)) && on 0 can_go_on "$RUN"; then
        say "The ranks' states are saved on the nodes: the same command goes on with this run. To remove them: $0 --down ${HOSTS[*]}"
    else
        on_all forget_run "${RUN:-}" || true
    fi
}

# What end_early of cluster.sh does here, also in the midst of what has no limit or another one.
end_run() { [[ ! ${STARTED:-} ]] || LIMIT=$USUAL_LIMIT end_ranks; }

run_on_nodes() {
    ready_images
    prepare_nodes
    run_ranks_on_nodes
    ((CODE == 0)) || tell_ranks
    if [[ $1 == keep ]]; then
        attend bring_home || warn "not all records could be fetched."
        say "The ended ranks are kept. On each node: docker ps --all, docker logs; the records are in /var/tmp/$(project_name)."
    else
        attend end_ranks
    fi
    ((CODE == 0)) || say "Rank 0 ended with exit code $CODE."
    exit "$CODE"
}

# Removes everything from all nodes, also where some cannot be reached.
take_down() {
    LIMIT=$LONG attend on_all remove_all || {
        say 'error: something may be left on these nodes:'
        tell_failures
        exit 1
    }
}
