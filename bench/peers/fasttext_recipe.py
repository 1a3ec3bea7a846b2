"""fastText's side: train, save, then test and predict. Arguments come as one JSON object."""

import json
import sys
import time
from pathlib import Path

import fasttext

job = json.loads(sys.argv[1])
began = time.perf_counter()
model = fasttext.train_supervised(
    job["train"],
    dim=10,
    wordNgrams=2,
    epoch=5,
    lr=job["rate"],
    thread=job["threads"],
    seed=job["seed"],
    minCount=1,
    bucket=2_000_000,
    verbose=0,
)
model.save_model(job["out"])
seconds = time.perf_counter() - began
rows, accuracy, _ = model.test(job["test"])
result = {"seconds": seconds, "accuracy": 100 * accuracy}
if job["predict"]:
    lines = [line.partition(" ")[2] for line in Path(job["test"]).read_text("utf-8").splitlines()]
    began = time.perf_counter()
    model.predict(lines)
    result["predicted_per_second"] = len(lines) / (time.perf_counter() - began)
print(json.dumps(result))
