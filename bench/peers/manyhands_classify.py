"""Our side: ``manyhands train FILE`` as it is, in a process that has compiled already; then the test rows.

The kernels are loaded first, by a job of a few rows: starting a program is not what is measured.
"""

import json
import shutil
import sys
import time
from pathlib import Path

from manyhands.evaluation.evaluate import evaluate
from manyhands.run.train import train

job = json.loads(sys.argv[1])
few = Path(job["out"] + ".few.csv")
with Path(job["train"]).open("rb") as file:
    few.write_bytes(b"".join(line for _, line in zip(range(500), file, strict=False)))
for data in (few, job["train"]):
    shutil.rmtree(job["out"], ignore_errors=True)
    began, used = time.perf_counter(), time.process_time()
    train(data, job["out"], seed=job["seed"], threads=job["threads"])
    seconds, cpu = time.perf_counter() - began, time.process_time() - used
report = evaluate(job["out"], job["test"], threads=job["threads"])
result = {
    "peer": "manyhands",
    "accuracy": round(100 * report.accuracy, 3),
    "macro_f1": round(100 * report.macro_f1, 3),
    "seconds": round(seconds, 2),
    "cpu_seconds": round(cpu, 2),
}
print(json.dumps(result), flush=True)
