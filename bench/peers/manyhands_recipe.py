"""Our side of the same: train from the text file, save, then test and predict.

The kernels are loaded first, by a job of a few rows: starting a program is not what is measured.
"""

import json
import shutil
import sys
import time
from pathlib import Path

from manyhands.bundle.bundle import load_bundle
from manyhands.evaluation.evaluate import evaluate
from manyhands.evaluation.predict import predict
from manyhands.run.train import train

job = json.loads(sys.argv[1])
few = Path(job["out"] + ".few.txt")
with Path(job["train"]).open("rb") as file:
    few.write_bytes(b"".join(line for _, line in zip(range(2000), file, strict=False)))
for data in (few, job["train"]):
    shutil.rmtree(job["out"], ignore_errors=True)
    began = time.perf_counter()
    train(data, job["out"], model=job["model"], seed=job["seed"], threads=job["threads"], **job["settings"])
    seconds = time.perf_counter() - began
accuracy = evaluate(job["out"], job["test"], threads=job["threads"]).accuracy
result = {"seconds": seconds, "accuracy": 100 * accuracy}
if job["predict"]:
    bare = Path(job["out"] + ".bare.txt")
    rows = Path(job["test"]).read_text("utf-8").splitlines()
    bare.write_text("".join(row.partition(" ")[2] + "\n" for row in rows), "utf-8")
    began = time.perf_counter()
    bundle = load_bundle(job["out"])
    loaded = time.perf_counter() - began
    count = 0
    for scores in predict(bundle, bare, threads=1, format="text"):  # fastText predicts on one thread
        best = scores.argmax(axis=1)  # as fastText's predict: the likeliest label and its probability
        count += len([(bundle.labels[k], p) for k, p in zip(best, scores.max(axis=1), strict=True)])
    result["predicted_per_second_1"] = count / (time.perf_counter() - began - loaded)
    text = [rows[0].partition(" ")[2]]
    times = []
    for _ in range(300):
        began = time.perf_counter()
        bundle.predict(text)
        times.append(time.perf_counter() - began)
    result |= {
        "one_text_milliseconds": 1000 * sorted(times)[len(times) // 2],
        "load_seconds": loaded,
        "bundle_mb": sum(path.stat().st_size for path in Path(job["out"]).iterdir()) / 1e6,
    }
print(json.dumps(result))
