"""The main job: four containers train VGG-11 for a whole epoch."""

import json

from tests.containers.cluster import Clone, docker


def test_four_ranks_train_vgg_11_for_an_epoch(clone: Clone) -> None:
    process = clone.start("docker", "compose", "up")
    output, _ = process.communicate(timeout=2400)
    assert process.returncode == 0, output
    for container in clone.containers("--all"):
        assert docker("inspect", "--format", "{{.State.ExitCode}}", container).strip() == "0"

    run = clone.summary()
    assert (run["sync_mode"], run["model"], run["dataset"]) == ("ddp", "vgg11", "shapes")
    assert run["world_size"] == len(run["ranks"]) == 4
    assert run["complete"]
    hashes = set()
    for rank in range(4):
        lines = (clone.folder / f"results/latest/rank-{rank}.jsonl").read_text().splitlines()
        records = [json.loads(line) for line in lines]
        steps = [record for record in records if record["kind"] == "step"]
        assert [record["step"] for record in steps] == list(range(196))
        assert sum(record["samples"] for record in steps) == 12_500
        hashes |= {record["parameters_sha256"] for record in records if record["kind"] == "finished"}
        data, whole = (sum(record[figure] for record in steps[1:]) for figure in ("data_seconds", "seconds"))
        print(f"rank {rank}: data is {data / whole:.2%} of the step")
    assert len(hashes) == 1
    assert sum(run["losses"][-20:]) / 20 < run["losses"][0]
    assert 0.60 <= run["run"]["accuracy"] <= 0.97
    print(json.dumps(run["run"], indent=1))
