"""The side of gensim and fastText: text in, a file of word vectors out. Arguments come as one JSON object."""

import json
import sys
import time
from pathlib import Path

job = json.loads(sys.argv[1])
if job["peer"] == "gensim":
    from gensim.models import Word2Vec

    began = time.perf_counter()
    model = Word2Vec(
        corpus_file=job["text"],
        sg=1,
        vector_size=job["dim"],
        window=job["window"],
        negative=job["negatives"],
        sample=job["sample"],
        min_count=job["min_count"],
        epochs=job["epochs"],
        workers=job["threads"],
        seed=job["seed"],
    )
    seconds, learning = time.perf_counter() - began, model.total_train_time
    model.wv.save_word2vec_format(job["out"], binary=True)
else:
    import fasttext
    import numpy as np

    began = time.perf_counter()
    # It takes no seed here; its runs differ by which thread comes first.
    model = fasttext.train_unsupervised(
        job["text"],
        model="skipgram",
        dim=job["dim"],
        ws=job["window"],
        neg=job["negatives"],
        t=job["sample"],
        minCount=job["min_count"],
        epoch=job["epochs"],
        thread=job["threads"],
        minn=0,  # words alone, as the others learn them
        maxn=0,
        verbose=0,
    )
    seconds = learning = time.perf_counter() - began
    words, vectors = model.get_words(), model.get_input_matrix().astype("<f4")
    with Path(job["out"]).open("wb") as file:
        file.write(b"%d %d\n" % (len(words), job["dim"]))
        for word, vector in zip(words, vectors, strict=True):
            file.write(word.encode() + b" " + np.ascontiguousarray(vector).tobytes())
print(json.dumps({"seconds": seconds, "learning_seconds": learning}))
