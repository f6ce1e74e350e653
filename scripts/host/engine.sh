# shellcheck shell=bash
# A working Docker Engine with Compose and buildx: left untouched if it works, otherwise installed and started.

TRIXIE_PACKAGES='docker.io docker-cli docker-compose docker-buildx'
TRIXIE_SOURCES=/etc/apt/sources.list.d/lockstep-trixie.sources
TRIXIE_PINS=/etc/apt/preferences.d/lockstep-trixie
ENGINE_SOCKET=/var/run/docker.sock
ENGINE_INIT_SCRIPT=/etc/init.d/docker
ENGINE_PATIENCE_SECONDS=60
LEAST_ENGINE=23.0   # the first that builds with BuildKit by default
LEAST_COMPOSE=2.22  # the first that merges the two documents of compose.yaml

# Docker as this user can reach it: directly, or through sudo.
# shellcheck disable=SC2032,SC2033  # sudo runs the program, not this function
docker() {
    if [[ ${DOCKER_THROUGH_SUDO:-} ]]; then
        sudo --preserve-env docker "$@"
    else
        command docker "$@"
    fi 9>&- # take_claim's lock
}

# Queries the engine once for all facts, because each docker command takes a tenth of a second.
ready_engine() {
    engine_answers || { use_sudo_where_it_helps && engine_answers; } || get_engine
    check_version 'Docker Engine' "$LEAST_ENGINE" "${ENGINE%% *}"
    [[ $(version_of_plugin compose) ]] || add_plugin compose
    check_version 'Docker Compose' "$LEAST_COMPOSE" "$(version_of_plugin compose)"
    [[ $(version_of_plugin buildx) ]] || add_plugin buildx
}

get_engine() {
    if [[ ${DOCKER_HOST:-} ]]; then
        fail docker-unreachable "no Docker engine answers at DOCKER_HOST=$DOCKER_HOST. Start it, or unset DOCKER_HOST to use this machine's."
    fi
    check_rights
    [[ $(uname -s) == Linux ]] || explain_installation
    command -v dockerd >/dev/null || install_packages engine
    start_engine
    engine_answers || { use_sudo_where_it_helps && engine_answers; } ||
        fail docker-unreachable "the Docker engine does not answer. See its log: journalctl -u docker, or /var/log/docker.log."
}

add_plugin() {
    install_packages "$1"
    engine_answers || true
}

check_rights() {
    [[ ! -S $ENGINE_SOCKET || -w $ENGINE_SOCKET ]] ||
        fail no-permission "this user has no permission to use the Docker engine. Run this, then log in again: sudo usermod -aG docker $(id -un 2>/dev/null || true)"
}

check_version() {
    local what=$1 least=$2 version=${3#v}
    printf '%s\n' "$least" "$version" | sort --version-sort --check=quiet ||
        fail outdated-software "$what $version is too old: $least or newer is needed. Update it, then repeat the command."
}

# Whether the engine answers. Sets ENGINE to its version, its CPUs, and PLUGIN=VERSION for each plug-in.
engine_answers() {
    local facts='{{.ServerVersion}} {{.NCPU}}{{range .ClientInfo.Plugins}} {{.Name}}={{.Version}}{{end}}'
    command -v docker >/dev/null && ENGINE=$(docker info --format "$facts" 2>/dev/null) && [[ $ENGINE == [0-9]* ]]
}

engine_cpus() { cut -d ' ' -f 2 <<<"$ENGINE"; }

version_of_plugin() { tr ' ' '\n' <<<"$ENGINE" | sed -n "s/^$1=//p"; }

# shellcheck disable=SC2033
use_sudo_where_it_helps() {
    [[ $EUID -ne 0 && -z ${DOCKER_HOST:-} ]] && can_be_root && sudo docker info >/dev/null 2>&1 || return 1
    DOCKER_THROUGH_SUDO=yes
}

can_be_root() {
    [[ $EUID -eq 0 ]] && return
    command -v sudo >/dev/null && { [[ -t 0 ]] || sudo --non-interactive true 2>/dev/null; }
}

as_root() {
    if [[ $EUID -eq 0 ]]; then "$@"; else sudo "$@"; fi
}

# This distribution, such as "debian 12" or "ubuntu 24.04"; empty if unknown.
distribution() {
    [[ -r /etc/os-release ]] || return 0
    # shellcheck disable=SC1091
    (. /etc/os-release && printf '%s %s\n' "${ID:-}" "${VERSION_ID:-}")
}

# The packages for a part (engine, compose or buildx) on a distribution; fails on an unknown distribution.
packages_for() {
    local part=$1 distribution=$2
    case "$part on $distribution" in
        'engine on debian 12' | 'engine on debian 13') echo "$TRIXIE_PACKAGES iptables" ;;
        'compose on debian 12' | 'compose on debian 13') echo docker-compose ;;
        'buildx on debian 12' | 'buildx on debian 13') echo docker-buildx ;;
        'engine on ubuntu 22.04' | 'engine on ubuntu 24.04') echo docker.io docker-compose-v2 docker-buildx ;;
        'compose on ubuntu 22.04' | 'compose on ubuntu 24.04') echo docker-compose-v2 ;;
        'buildx on ubuntu 22.04' | 'buildx on ubuntu 24.04') echo docker-buildx ;;
        *) return 1 ;;
    esac
}

install_packages() {
    local part=$1 distribution packages names
    distribution=$(distribution)
    packages=$(packages_for "$part" "$distribution") || explain_installation
    can_be_root || explain_installation "as root: apt-get install $packages"
    say "Installing the Docker $part from the packages of ${distribution^}: $packages"
    [[ $distribution != 'debian 12' ]] || add_trixie_source
    read -r -a names <<<"$packages"
    quietly install_from_distribution "${names[@]}" || fail missing-program "cannot install $packages. The reason is above."
}

install_from_distribution() {
    as_root apt-get update
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends "$@"
}

# Debian 12 has no Compose v2, but trixie's packages run on it. These four come from trixie, with its security updates.
# Other packages come from trixie only if bookworm has no package of that name, or is no longer a source.
add_trixie_source() {
    local mirror security release='Pin: release o=Debian,n=/^trixie(-security|-updates)?$/'
    mirror=$(debian_mirror)
    [[ $mirror ]] || fail missing-program "cannot install Docker: the package sources of this machine contain no Debian mirror. Add one, or install Docker yourself."
    security=$(security_mirror)
    [[ $security ]] || warn "the package sources of this machine contain no archive of Debian's security updates, so Docker receives none."
    {
        trixie_source "$mirror" trixie
        [[ -z $security ]] || trixie_source "$security" trixie-security
    } | as_root tee "$TRIXIE_SOURCES" >/dev/null
    # Below bookworm's 500 and above the 100 of installed versions and backports, so that an upgrade to trixie works.
    printf 'Package: %s\n%s\nPin-Priority: %s\n\n' \
        '*' "$release" 400 "$TRIXIE_PACKAGES" "$release" 990 | as_root tee "$TRIXIE_PINS" >/dev/null
}

trixie_source() {
    printf '%s\n' 'Types: deb' "URIs: $1" "Suites: $2" 'Components: main' \
        'Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg' ''
}

# Docker stays installed. Without a terminal nothing is removed, because that needs root and ends Docker's updates.
offer_to_remove_trixie_source() {
    local answer remove=(rm -f "$TRIXIE_SOURCES" "$TRIXIE_PINS")
    [[ -e $TRIXIE_SOURCES || -e $TRIXIE_PINS ]] || return 0
    if [[ -t 0 && -t 2 ]]; then
        read -rp "Remove the package sources from which Docker was installed and is updated? [y/N] " answer || answer=no
        [[ $answer != [yY]* ]] || as_root "${remove[@]}"
    else
        say "Docker and its package sources stay installed. To remove the sources: sudo ${remove[*]}"
    fi
}

# The mirrors from which this machine installs Debian and its security updates, even before it has fetched any lists.
debian_mirror() { first_archive '/debian/? main$'; }
security_mirror() { first_archive '^[^ ]*-security .* main$'; }

first_archive() {
    # shellcheck disable=SC2016
    apt-get indextargets --no-release-info --format '$(RELEASE) $(REPO_URI) $(COMPONENT)' 'Created-By: Packages' |
        awk -v entry="$1" '$0 ~ entry { print $2; exit }'
}

start_engine() {
    can_be_root || explain_installation 'as root: systemctl start docker'
    say 'Starting the Docker engine'
    remove_stale_pid_files
    if [[ -d /run/systemd/system ]]; then
        as_root systemctl start docker
    else
        start_engine_without_systemd
    fi
    local deadline=$((SECONDS + ENGINE_PATIENCE_SECONDS))
    until as_root docker info >/dev/null 2>&1; do
        ((SECONDS < deadline)) ||
            fail docker-unreachable "the Docker engine did not answer within $ENGINE_PATIENCE_SECONDS s. See its log: journalctl -u docker, or /var/log/docker.log."
        sleep 0.2
    done
}

# The init script raises limits first, and fails on a machine that may not raise them. There it runs without `ulimit`:
# called directly, since `service` clears the environment.
start_engine_without_systemd() {
    as_root service docker start >/dev/null 2>&1 && return
    # shellcheck disable=SC2016
    quietly as_root env -i PATH="$PATH" sh -c 'ulimit() { :; }; . "$0"' "$ENGINE_INIT_SCRIPT" start ||
        fail docker-unreachable 'cannot start the Docker engine. The reason is above.'
}

# They survive a power cut, and the engine mistakes them for those of a running engine.
remove_stale_pid_files() {
    local file pid
    for file in /run/docker.pid /run/docker-ssd.pid /run/docker/containerd/containerd.pid; do
        pid=$(cat "$file" 2>/dev/null) || continue
        case $(cat "/proc/$pid/comm" 2>/dev/null) in
            dockerd | containerd) ;;
            *) as_root rm -f "$file" ;;
        esac
    done
}

explain_installation() {
    local advice=${1:-}
    if [[ -z $advice ]]; then
        case "$(uname -s) $(distribution)" in
            Darwin*) advice='install and start Docker Desktop, which brings Compose and buildx' ;;
            *' fedora '*) advice='sudo dnf install moby-engine docker-compose docker-buildx && sudo systemctl start docker' ;;
            *' arch '*) advice='sudo pacman -S docker docker-compose docker-buildx && sudo systemctl start docker' ;;
            *' opensuse'*) advice='sudo zypper install docker docker-compose docker-buildx && sudo systemctl start docker' ;;
            *) advice='install Docker Engine, the Compose v2 plug-in and the buildx plug-in, and start the engine' ;;
        esac
    fi
    fail docker-missing "Lockstep needs a running Docker Engine with Compose v2 and buildx, and cannot install them here.
Do this, then repeat the command:
  $advice"
}
