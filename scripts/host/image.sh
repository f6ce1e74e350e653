# shellcheck shell=bash
# The image: one for all checkouts with the same sources, tagged lockstep:SOURCES. Each checkout that uses it adds a tag
# lockstep:of-PROJECT. An image without such a tag can be removed.

# Builds the program's image unless it exists, and sets LOCKSTEP_IMAGE to it.
build_image() {
    [[ ${REVISION+given} ]] || REVISION=$(git describe --always --dirty 2>/dev/null) || REVISION=''
    ready_image lockstep lockstep
    export LOCKSTEP_IMAGE=$IMAGE
    docker tag "$IMAGE" lockstep # the newest, for commands by hand; nothing here depends on it
}

# Sets IMAGE to a stage of the Dockerfile built from these sources, and tags it as used by this checkout.
ready_image() {
    local target=$1 name=$2
    ready_base_image
    IMAGE=$name:$(number_of_sources)
    image_id "$IMAGE" >/dev/null || build "$target" "$IMAGE"
    use_image "$IMAGE" "$name:of-$(project_name)"
}

# Moves this checkout's tag to an image. The image that had it is removed, unless another checkout uses it.
use_image() {
    local image=$1 own=$2 before
    before=$(image_id "$own") || before=''
    docker tag "$image" "$own"
    [[ -z $before || $before == "$(image_id "$own")" ]] || release_image "$before"
}

# Not by Compose, which would label the image, and all its containers, with its project.
build() {
    local target=$1 tag=$2
    local command=(docker buildx build --load --target "$target" --tag "$tag" --build-arg "REVISION=$REVISION" --file docker/Dockerfile .)
    if [[ -t 2 ]]; then
        attend "${command[@]}"
    else
        say 'Building the image, which takes one or two minutes the first time'
        attend quietly "${command[@]}"
    fi || fail image-failed 'cannot build the image. The reason is above.'
}

image_id() { docker image inspect --format '{{.Id}}' "$1" 2>/dev/null; }

number_of_sources() {
    {
        image_id "$BASE_IMAGE"
        echo "$REVISION"
        find docker/Dockerfile docker/entrypoint docker/health docker/torchrun app -type f ! -path '*/__pycache__/*' -print0 | LC_ALL=C sort -z | xargs -0 "${CHECKSUM[@]}"
    } | "${CHECKSUM[@]}" | cut -c 1-16
}

# Removes an image that no checkout uses. The engine keeps one that a container still runs.
release_image() {
    local tags names
    tags=$(docker image inspect --format '{{join .RepoTags "\n"}}' "$1" 2>/dev/null) || return 0
    [[ $tags != *lockstep*:of-* ]] || return 0
    mapfile -t names <<<"${tags:-$1}"
    docker image rm "${names[@]}" >/dev/null 2>&1 || true
}

leave_image() {
    local image=$1 id
    id=$(image_id "$image") || return 0
    docker image rm "$image" >/dev/null
    release_image "$id"
}

if command -v sha256sum >/dev/null; then CHECKSUM=(sha256sum); else CHECKSUM=(shasum -a 256); fi
