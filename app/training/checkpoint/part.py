"""One rank's part of a checkpoint on disk: a safetensors file, and a JSON file with checksums."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from app.errors import DamagedError, ExtensionError
from app.machine.durable import seal, sha256, unseal, write_durably
from app.training.checkpoint.state import Label, State

TENSORS, NUMBERS = ".safetensors", ".json"
TYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint64: "U64",
    torch.uint32: "U32",
    torch.uint16: "U16",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


def write(folder: Path, label: Label, state: State) -> str:
    """Write the part durably, and return its checksum, which covers both files."""
    try:
        tensors = write_durably(_path(folder, label.rank, TENSORS), *as_safetensors(state.tensors))
        numbers = seal({"label": asdict(label), "tensors_sha256": tensors, "numbers": dict(state.numbers)})
        return write_durably(_path(folder, label.rank, NUMBERS), numbers)
    except OSError:
        remove(folder, label.rank)  # free the space on a full disk
        raise


def as_safetensors(tensors: Mapping[str, torch.Tensor]) -> Iterator[bytes | memoryview]:
    """A safetensors file in pieces that share the tensors' memory, because the library copies all of them twice."""
    yield header_of(tensors)
    for tensor in tensors.values():
        yield memoryview(tensor.detach().contiguous().view(-1).view(torch.uint8).numpy())


def header_of(tensors: Mapping[str, torch.Tensor]) -> bytes:
    """The header of a safetensors file. Raises ExtensionError for a tensor that the format does not support."""
    header, end = {}, 0
    for name, tensor in tensors.items():
        dtype = getattr(tensor, "dtype", type(tensor))  # a module's extra state may be any object
        if dtype not in TYPES or tensor.layout != torch.strided:
            raise ExtensionError(
                f"cannot save {name} of {dtype if dtype not in TYPES else tensor.layout} in a checkpoint. Use a dense "
                f"tensor of {', '.join(map(str, TYPES))}, or set CHECKPOINT_EVERY=0 to save nothing.",
                "invalid-extension",
            )
        begin, end = end, end + tensor.nbytes
        header[name] = {"dtype": TYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def checksum(folder: Path, label: Label) -> str:
    """The checksum of a part. Raises DamagedError if a bit of it has changed, or if its label differs."""
    path = _path(folder, label.rank, NUMBERS)
    try:
        content = unseal(path)
        attempt = content["label"]["attempt"]
        if content["label"] != asdict(label) | {"attempt": attempt}:
            raise DamagedError(f"{path} is from another run, rank or step.")
        with _path(folder, label.rank, TENSORS).open("rb") as file:
            tensors = hashlib.file_digest(file, "sha256").hexdigest()
        if tensors != content["tensors_sha256"]:
            raise DamagedError(f"checksum mismatch in {_path(folder, label.rank, TENSORS)}.", "checksum-mismatch")
        return sha256(path.read_bytes())
    except (OSError, LookupError, TypeError) as error:
        raise DamagedError(f"cannot read {path}: {error}.") from None


def read(folder: Path, rank: int) -> State:
    """Read a part whose checksum has been verified."""
    content: dict[str, Any] = unseal(_path(folder, rank, NUMBERS))
    tensors: dict[str, torch.Tensor] = load_file(_path(folder, rank, TENSORS))
    return State(tensors, content["numbers"])


def exists(folder: Path, rank: int) -> bool:
    """Whether at least one of the part's two files exists."""
    return any(_path(folder, rank, ending).exists() for ending in (TENSORS, NUMBERS))


def move(folder: Path, rank: int, to: Path) -> None:
    """Move the part's files, replacing those of an earlier part."""
    to.mkdir(parents=True, exist_ok=True)
    remove(to, rank)
    for ending in (TENSORS, NUMBERS):
        if (path := _path(folder, rank, ending)).exists():
            path.replace(_path(to, rank, ending))


def remove(folder: Path, rank: int) -> None:
    """Remove the part's files, including partially written ones."""
    for ending in (TENSORS, NUMBERS):
        path = _path(folder, rank, ending)
        path.unlink(missing_ok=True)
        path.with_name(f".{path.name}.new").unlink(missing_ok=True)


def _path(folder: Path, rank: int, ending: str) -> Path:
    return folder / f"rank-{rank}{ending}"
