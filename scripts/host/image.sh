# shellcheck shell=bash
# The image: one for all checkouts with the same sources, under the tag lockstep:SOURCES. A second tag for each
# checkout that uses it, lockstep:of-PROJECT, says when nobody needs it any longer.

# Builds the program's image unless it is there, and lets LOCKSTEP_IMAGE name it.
build_image() {
    [[ ${REVISION+given} ]] || REVISION=$(git describe --always --dirty 2>/dev/null) || REVISION=''
    ready_image lockstep lockstep
    export LOCKSTEP_IMAGE=$IMAGE
    docker tag "$IMAGE" lockstep # the newest, for commands by hand; nothing here depends on it
}

# Sets IMAGE to a stage of the Dockerfile as these sources make it, and notes that this checkout uses it.
ready_image() {
    local target=$1 name=$2
    IMAGE=$name:$(number_of_sources)
    image_id "$IMAGE" >/dev/null || build "$target" "$IMAGE"
    use_image "$IMAGE" "$name:of-$(project_name)"
}

# Gives an image this checkout's tag. The image that had it goes, unless another checkout uses it.
use_image() {
    local image=$1 own=$2 before
    before=$(image_id "$own") || before=''
    docker tag "$image" "$own"
    [[ -z $before || $before == "$(image_id "$own")" ]] || release_image "$before"
}

# Not by Compose, which would label the image, and all that runs from it, as its project's.
build() {
    local target=$1 tag=$2
    local command=(docker buildx build --load --target "$target" --tag "$tag" --build-arg "REVISION=$REVISION" --file docker/Dockerfile .)
    if [[ -t 2 ]]; then
        attend "${command[@]}"
    else
        say 'Building the image, which takes a minute or two the first time'
        attend quietly "${command[@]}"
    fi || fail 'the image could not be built; the reason stands above.'
}

image_id() { docker image inspect --format '{{.Id}}' "$1" 2>/dev/null; }

# Follows from all that goes into the image.
number_of_sources() {
    {
        image_id "$BASE_IMAGE"
        echo "$REVISION"
        find docker/Dockerfile docker/entrypoint docker/health docker/torchrun app -type f ! -path '*/__pycache__/*' -print0 | LC_ALL=C sort -z | xargs -0 "${CHECKSUM[@]}"
    } | "${CHECKSUM[@]}" | cut -c 1-16
}

# Removes an image that no checkout uses any longer. The engine keeps one that a container still runs.
release_image() {
    local tags names
    tags=$(docker image inspect --format '{{join .RepoTags "\n"}}' "$1" 2>/dev/null) || return 0
    [[ $tags != *lockstep*:of-* ]] || return 0
    mapfile -t names <<<"${tags:-$1}"
    docker image rm "${names[@]}" >/dev/null 2>&1 || true
}

# Takes this checkout's tag from an image.
leave_image() {
    local image=$1 id
    id=$(image_id "$image") || return 0
    docker image rm "$image" >/dev/null
    release_image "$id"
}

if command -v sha256sum >/dev/null; then CHECKSUM=(sha256sum); else CHECKSUM=(shasum -a 256); fi
