"""Writers to S3 that are killed (kill -9) at random moments, and run again until they end by themselves.

The server is a real one (SeaweedFS) on the loopback address. Of ``predict``, 50 files of reviews are scored:
afterwards every row of the input has to be there once, and nothing but the parts and the manifest.
``prepare`` and ``train`` have to give what one run gives, and to leave neither objects, uploads nor temporary
folders. Every second kill comes at a random moment, the others shortly after the first object is there.
"""

import argparse
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from measure import save

sys.path.insert(0, str(Path(__file__).parent.parent))
from tests.store import environment, s3_server  # the tests start the same server

from manyhands.data.sample import sample

FILES, BUCKET = 50, "bench"
DONE = {"manifest.json", "SHA256SUMS"}  # what prepare and train write last


def store() -> Any:
    import s3fs

    return s3fs.S3FileSystem(skip_instance_cache=True, use_listings_cache=False)


def run_with_kills(command: list[str], kills: int, seconds: float, draw: random.Random) -> dict[str, Any]:
    """Run until it ends by itself; the first ``kills`` runs are killed, if they live so long."""
    made, began, folder = 0, time.monotonic(), command[-1].removeprefix("s3://")
    while True:
        process = subprocess.Popen(
            [sys.executable, "-m", "manyhands", *command], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        if made < kills:
            before, moment = len(store().find(folder)), time.monotonic() + draw.uniform(0, seconds)
            while process.poll() is None:
                seen = made % 2 == 0 and len(store().find(folder)) > before
                if seen or (made % 2 and time.monotonic() > moment):
                    time.sleep(draw.uniform(0, 0.2) if seen else 0)
                    process.send_signal(signal.SIGKILL)
                    break
        _, error = process.communicate()
        if process.returncode == -signal.SIGKILL:
            made += 1
            if not DONE & {name.rpartition("/")[2] for name in store().find(folder)}:
                continue  # else it was killed behind its last step
        elif process.returncode:
            raise SystemExit(error.decode())
        return {"kills": made, "seconds": round(time.monotonic() - began, 1)}


def contents(folder: str) -> dict[str, str]:
    files = store()
    return {
        name.removeprefix(folder).strip("/"): hashlib.sha256(files.cat_file(name)).hexdigest()
        for name in files.find(folder)
    }


def left_behind(scratch: Path) -> list[str]:
    uploads = [f"upload of {upload['Key']}" for upload in store().list_multipart_uploads(BUCKET) or []]
    return uploads + [path.name for path in scratch.glob("manyhands-*")]


def predict(folder: Path, options: argparse.Namespace, draw: random.Random) -> dict[str, Any]:
    files, ids = store(), set()
    for number in range(FILES):
        sample(options.rows // FILES, str(folder / "rows.jsonl"), seed=number, broken=0)
        rows = [json.loads(line) for line in (folder / "rows.jsonl").read_text("utf-8").splitlines()]
        lines = [json.dumps({"id": f"{number}-{k}", **row}) for k, row in enumerate(rows)]
        files.pipe_file(f"{BUCKET}/raw/{number:02d}.jsonl", "".join(f"{line}\n" for line in lines).encode())
        ids |= {f"{number}-{k}" for k in range(len(rows))}
    command = [
        "predict",
        str(folder / "bundle"),
        f"s3://{BUCKET}/raw/*.jsonl",
        "--out",
        f"s3://{BUCKET}/scored",
    ]
    found = run_with_kills(command, options.kills, options.seconds, draw)
    names = [name.rpartition("/")[2] for name in files.find(f"{BUCKET}/scored")]
    scored = [
        json.loads(line)["id"]
        for name in names
        if name.endswith(".jsonl")
        for line in files.cat_file(f"{BUCKET}/scored/{name}").splitlines()
    ]
    expected = [*(f"{number:02d}.jsonl" for number in range(FILES)), "_manifest.json"]
    once = len(scored) == len(ids) and set(scored) == ids
    return {**found, "rows": len(ids), "each_row_once": once, "only_parts_and_manifest": names == expected}


def whole(verb: str, folder: Path, options: argparse.Namespace, draw: random.Random) -> dict[str, Any]:
    """``prepare`` or ``train``, killed and not; what both wrote has to be the same."""
    more = ["--deterministic", "--epochs", "2"] if verb == "train" else []
    command = [verb, str(folder / "train.jsonl"), *more, "--out"]
    found = run_with_kills([*command, f"s3://{BUCKET}/{verb}"], options.kills, options.seconds, draw)
    run_with_kills([*command, f"s3://{BUCKET}/{verb}-once"], 0, 0, draw)
    killed, once = contents(f"{BUCKET}/{verb}"), contents(f"{BUCKET}/{verb}-once")
    timed = {"record.json", "README.md", "SHA256SUMS"}  # they tell how long it took
    same = killed.keys() == once.keys() and all(killed[k] == once[k] for k in killed if k not in timed)
    return {**found, "same_as_one_run": same, "files": len(killed)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=8, help="a run is killed within so many seconds")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    draw, results = random.Random(options.seed), {}
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        for part in ("s3", "scratch", "cache"):
            (folder / part).mkdir()
        with s3_server(folder / "s3", BUCKET) as address:
            os.environ |= {**environment(address, folder / "cache"), "TMPDIR": str(folder / "scratch")}
            sample(options.rows // 2, str(folder / "train.jsonl"), seed=999, broken=0)
            run_with_kills(
                ["train", str(folder / "train.jsonl"), "--out", str(folder / "bundle")], 0, 0, draw
            )
            for verb in ("predict", "prepare", "train"):
                found = (
                    predict(folder, options, draw)
                    if verb == "predict"
                    else whole(verb, folder, options, draw)
                )
                results[verb] = {**found, "left_behind": left_behind(folder / "scratch")}
                print(verb, json.dumps(results[verb]), flush=True)
    save("s3_kills", {"rows": options.rows, "files": FILES, "seed": options.seed, "results": results})


if __name__ == "__main__":
    main()
