"""A user's own mode, model and data set in a run, and submissions in their confinement."""

import csv
import io
import struct
import zlib
from pathlib import Path

from tests.containers.cluster import ROOT, Clone
from tests.solutions import on_the_page, solved

TRAINS = "scripts/up SYNC_MODE=my_mode MODEL=my_model DATASET=my_set"
TRAINS_ON_PICTURES = "scripts/up DATASET=pets"


def put(clone: Clone, place: str, text: str) -> None:
    path = clone.folder / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_a_mode_a_model_and_a_data_set_of_ones_own_train_without_another_image(used_clone: Clone) -> None:
    code, output = used_clone.run("bash", "-c", "cp examples/part_2a.py extensions/my_mode.py")
    assert code == 0, output
    code, output = used_clone.run(
        "bash", "-c", "SYNC_MODE=my_mode scripts/up", MODEL="lenet5", DATASET="digits", WORKERS="1"
    )
    assert code == 1
    assert "extensions/my_mode.py, line " in output
    assert "TODO 1: rank 0 gathers this gradient" in output
    image = used_clone.run("docker", "image", "inspect", "--format", "{{.Id}}", used_clone.image)
    used_clone.run("scripts/down")

    for name, text in {**on_the_page(), "my_mode": solved("part_2a")}.items():
        put(used_clone, f"extensions/{name}.py", text)
    code, output = used_clone.run("bash", "-c", TRAINS, MAX_STEPS="4", GLOBAL_BATCH_SIZE="40", LINK_CHECK="off")
    assert code == 0, output
    assert used_clone.run("docker", "image", "inspect", "--format", "{{.Id}}", used_clone.image) == image
    summary = used_clone.summary()
    assert (summary["sync_mode"], summary["model"], summary["dataset"]) == ("my_mode", "my_model", "my_set")
    assert summary["complete"]
    assert summary["replicas_identical"]
    for rank in summary["ranks"]:
        assert rank["bytes_sent_per_step"] == rank["formula_bytes_sent_per_step"] > 0


def put_picture(path: Path, grey: int) -> None:
    """A grey PNG of one pixel."""
    chunks = (
        (b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0)),
        (b"IDAT", zlib.compress(bytes([0, grey]))),
        (b"IEND", b""),
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(
        b"\x89PNG\r\n\x1a\n"
        + b"".join(
            struct.pack(">I", len(text)) + kind + text + struct.pack(">I", zlib.crc32(kind + text))
            for kind, text in chunks
        )
    )


def test_a_folder_of_pictures_trains_and_a_damaged_one_is_refused_before_any_rank_starts(used_clone: Clone) -> None:
    for part in ("train", "test"):
        for number in range(12):
            put_picture(
                used_clone.folder / f"data/pets/{part}/{('cat', 'dog', 'emu')[number % 3]}/{number}.png", 20 * number
            )
    values = {"MODEL": "lenet5", "MAX_STEPS": "2", "GLOBAL_BATCH_SIZE": "6", "WORKERS": "1", "LINK_CHECK": "off"}
    code, output = used_clone.run("bash", "-c", TRAINS_ON_PICTURES, **values)
    assert code == 0, output
    assert "lenet5 on pets: pictures in data/pets, 12 + 12 in 3 classes" in output
    summary = used_clone.summary()
    assert (summary["dataset"], summary["complete"]) == ("pets", True)
    code, output = used_clone.run(
        "bash", "-c", "scripts/experiment ring --quick --dry-run DATASET=pets TRAIN_SAMPLES=12"
    )
    assert code == 0, output

    (used_clone.folder / "data/pets/test/cat/0.png").write_bytes(b"")
    code, output = used_clone.run("bash", "-c", TRAINS_ON_PICTURES, **values)
    assert code == 2, output
    assert "error: [invalid-file] data/pets/test/cat/0.png is empty." in output
    assert "joined" not in output
    code, output = used_clone.run("scripts/up", "DATASET=pet", **values)
    assert code == 2, output
    assert "Did you mean pets?" in output


def test_what_is_no_mode_is_refused_before_any_rank_starts(used_clone: Clone) -> None:
    put(used_clone, "extensions/broken.py", "class Broken(:\n")
    code, output = used_clone.run("scripts/up", "SYNC_MODE=broken", "MODEL=lenet5")
    assert code == 2, output
    assert "error: [invalid-extension] " in output
    assert "extensions/broken.py, line 1: " in output
    assert "joined" not in output
    code, output = used_clone.run("scripts/up", "SYNC_MODE=my_mod", "MODEL=lenet5")
    assert code == 2, output
    assert "Did you mean my_mode?" in output


def test_conformance_of_a_good_mode_and_of_a_bad_one(used_clone: Clone) -> None:
    put(used_clone, "extensions/my_mode.py", on_the_page()["my_mode"])
    code, output = used_clone.run("scripts/conformance", "my_mode")
    assert code == 0, output
    assert "extensions/my_mode.py conforms: 13 laws" in output
    put(used_clone, "extensions/my_mode.py", (ROOT / "examples/ring.py").read_text())
    code, output = used_clone.run("scripts/conformance", "my_mode")
    assert code == 1, output
    assert "extensions/my_mode.py breaks the law 'ends'" in output
    assert "TODO 1: step 0 of the reduce-scatter" in output
    code, output = used_clone.run("scripts/conformance", "ring_all_reduc")
    assert code == 2, output
    assert "Did you mean ring_all_reduce?" in output


KILLER = """import os
from app.sync.modes.all_reduce import AllReduce
class Killer(AllReduce):
    def average(self, values):
        print("submission,conforms,,,")
        os.kill(-1, 9)
        os.kill(os.getppid(), 9)
        os._exit(0)
"""

PRINTER = """import os
import signal
from app.sync.modes.all_reduce import AllReduce
class Printer(AllReduce):
    def average(self, values):
        for number in signal.valid_signals():
            os.kill(1, number)
        while True:
            print("submission,conforms,,,")
"""

LIAR = """import torch.distributed as dist
from app.sync.modes.all_reduce import AllReduce
class Liar(AllReduce):
    def average(self, values):
        ranks = self._communicator.world_size
        everyones = [values.clone() for _ in range(4 * ranks)]
        for start in range(0, 4 * ranks, ranks):
            dist.all_gather(everyones[start : start + ranks], values)
        values.copy_(sum(everyones) / (4 * ranks))
        share = 2 * (ranks - 1) / ranks * values.nbytes
        self._communicator.traffic.begin(share, share)
        self._communicator.traffic.end()
        if ranks == 1:
            values.copy_(everyones[0])
"""


def test_a_folder_of_submissions_becomes_a_table_whatever_they_do(used_clone: Clone) -> None:
    put(used_clone, "submissions/anna/my_mode.py", (ROOT / "examples/part_2b.py").read_text())
    put(used_clone, 'submissions/=bob, "b".py', KILLER)
    put(used_clone, "submissions/carol.py", "nothing = 0\n")
    put(used_clone, "submissions/dora.py", PRINTER)
    put(used_clone, "submissions/eric.py", LIAR)
    code, output = used_clone.run("bash", "-c", "scripts/conformance --all submissions > table.csv")
    assert code == 1, output
    header, *rows = csv.reader(io.StringIO((used_clone.folder / "table.csv").read_text()))
    assert header == ["submission", "verdict", "law broken", "smallest case", "seconds"]
    assert [row[:3] for row in rows] == [
        ['\'=bob, "b".py', "broken", "ends"],
        ["carol.py", "refused", ""],
        ["dora.py", "broken", "ends"],
        ["eric.py", "broken", "bytes"],
        ["anna/my_mode.py", "broken", "ends"],
    ]
    assert "more than 1 MiB" in rows[2][3]
    assert "the kernel" in rows[3][3]
    assert "TODO 1: " in rows[4][3]
    assert used_clone.run("scripts/conformance", "--all", "nowhere")[0] == 2
    assert "lockstep-conformance" not in used_clone.run("docker", "ps", "--all", "--format", "{{.Names}}")[1]
