"""fastText's side of predicting whole files: its model is trained once, then each line asks for a run.

Lines of standard input name a run: the file and how many processes share it. Each process reads its part of
the lines and calls ``predict`` for all of them at once, which is the fastest that fastText's module offers;
nothing is written, which is to its advantage.
"""

import json
import multiprocessing
import os
import sys
import time
from itertools import islice
from pathlib import Path

import fasttext

job = json.loads(sys.argv[1])
path = Path(job["out"] + ".bin")
recipe = {"dim": 10, "wordNgrams": 2, "epoch": 5, "minCount": 1, "bucket": 2_000_000}
fasttext.train_supervised(job["train"], lr=job["rate"], thread=2, verbose=0, **recipe).save_model(str(path))
model = fasttext.load_model(str(path))


def share(file: str, first: int, of: int) -> tuple[int, float]:
    used = time.process_time()
    with Path(file).open(encoding="utf-8") as rows:
        lines = [row[:-1] for row in islice(rows, first, None, of)]
    model.predict(lines)
    return len(lines), time.process_time() - used


accuracy = 100 * model.test(job["test"])[1]
print(json.dumps({"accuracy": accuracy, "version": getattr(fasttext, "__version__", "")}), flush=True)
for line in sys.stdin:
    file, processes = json.loads(line)
    # Forked once the model is there, and before the clock starts: they share its memory.
    with multiprocessing.get_context("fork").Pool(processes) as pool:
        pool.starmap(share, [(os.devnull, 0, 1)] * processes, chunksize=1)
        began = time.perf_counter()
        done = pool.starmap(share, [(file, k, processes) for k in range(processes)], chunksize=1)
        seconds = time.perf_counter() - began
        pool.close()
        pool.join()
    rows, used = (sum(values) for values in zip(*done, strict=True))
    print(json.dumps({"rows": rows, "seconds": seconds, "cpu_seconds": used}), flush=True)
