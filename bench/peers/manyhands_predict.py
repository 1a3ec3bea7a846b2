"""Our side of predicting whole files: models are trained once, then each line of input asks for a run.

A run reads a file and writes it again with two more columns.
"""

import json
import sys
import time
from pathlib import Path

from manyhands.bundle.bundle import load_bundle
from manyhands.evaluation.evaluate import evaluate
from manyhands.run.train import train
from manyhands.scoring.score import score_files

job = json.loads(sys.argv[1])
bundles, accuracy = {}, {}
for model, settings in job["models"].items():
    out = f"{job['out']}.{model}"
    train(job["train"], out, model=model, seed=1, overwrite=True, **settings)
    bundles[model] = load_bundle(out)
    accuracy[model] = 100 * evaluate(out, job["test"]).accuracy
print(json.dumps({"accuracy": accuracy}), flush=True)
for line in sys.stdin:
    model, file, threads, more = json.loads(line)
    out = str(Path(job["out"]).with_suffix(".scored" + Path(file).suffix))
    began, used = time.perf_counter(), time.process_time()
    scored = score_files(bundles[model], file, out, overwrite=True, threads=threads, **more)
    found = {"rows": scored.ledger.scored, "seconds": time.perf_counter() - began}
    print(json.dumps({**found, "cpu_seconds": time.process_time() - used}), flush=True)
