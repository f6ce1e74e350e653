# shellcheck shell=bash
# The base image: pulled if a registry answers, otherwise built from Debian's packages under the same name.

BASE_IMAGE=debian:trixie-slim
REGISTRY_PATIENCE_SECONDS=8
HOME_MADE_LABEL=lockstep.home-made

ready_base_image() {
    docker image inspect "$BASE_IMAGE" >/dev/null 2>&1 && return
    pull_base_image || make_base_image
}

# The first line of a pull shows that the registry answers. After that line the pull may take as long as it needs.
pull_base_image() {
    local log pull deadline=$((SECONDS + REGISTRY_PATIENCE_SECONDS)) pulled=no
    temporary_file log
    docker pull "$BASE_IMAGE" >"$log" 2>&1 &
    pull=$!
    until grep -q 'Pulling from' "$log" || ! kill -0 "$pull" 2>/dev/null; do
        ((SECONDS < deadline)) || { kill "$pull" 2>/dev/null && break; }
        sleep 0.1
    done
    wait "$pull" 2>/dev/null && pulled=yes
    [[ $pulled == yes ]]
}

make_base_image() {
    local mirror=()
    say "No registry answers. Building $BASE_IMAGE from Debian's packages"
    if ! command -v mmdebstrap >/dev/null; then
        case $(distribution) in
            'debian '* | 'ubuntu '*) can_be_root ;;
            *) false ;;
        esac || fail missing-program "building $BASE_IMAGE needs mmdebstrap. Install it, or run 'docker pull $BASE_IMAGE' where a registry answers."
        quietly install_from_distribution mmdebstrap debian-archive-keyring || fail missing-program 'cannot install mmdebstrap. The reason is above.'
    fi
    # On other distributions mmdebstrap finds a mirror itself.
    [[ $(distribution) != 'debian '* ]] || mirror=("$(debian_mirror)")
    quietly bootstrap "${mirror[@]}" ||
        fail image-failed "cannot build $BASE_IMAGE. The reason is above. If a registry answers, run 'docker pull $BASE_IMAGE' instead."
}

bootstrap() {
    local keyring=/usr/share/keyrings/debian-archive-keyring.gpg options=()
    [[ ! -r $keyring ]] || options=("--keyring=$keyring") # Ubuntu's own keys do not sign Debian's packages
    as_root mmdebstrap --variant=minbase --include=ca-certificates "${options[@]}" \
        --dpkgopt='path-exclude=/usr/share/doc/*' \
        --dpkgopt='path-exclude=/usr/share/man/*' \
        --dpkgopt='path-exclude=/usr/share/locale/*' \
        trixie - "$@" |
        docker import --change "LABEL $HOME_MADE_LABEL=yes" - "$BASE_IMAGE"
}
