#!/usr/bin/env bash
# What the claims are judged by (docs/protocol.md): real text, three seeds, in order of worth. Each command goes on where it
# was stopped, since the store keeps what is done. build/evidence/ gets a page after each.
#   DATA=folder OPTIONS='--address auto' bash infra/evidence.sh      DATA instead of downloads; STORE: default runs; OPTIONS=--plan shows what would run
set -euo pipefail
python=${PYTHON:-.venv/bin/python} store=${STORE:-runs}
train() {
    name=$1 table=$2
    "$python" -m "workflows.reproduce_$table" --store "$store" ${DATA:+--data "$DATA"} ${OPTIONS:-} "${@:3}"
    [[ ${OPTIONS:-} == *--plan* ]] || "$python" -m workflows.cli results "$store/$table/multi30k/newest" --out "build/evidence/$name.md" --title "$name"
}
pair="--profile multi30k --pairs en-de --seeds 3"
rows="--config examples/table3_multi30k.toml --seeds 3"
train table3-first table3 $rows --rows base,A1,A4,B1,C1,D1,D3,E
train competitors table2 $pair --models base,recurrent,convolutional
train attention-functions table3 --config examples/attention_functions.toml --set grid.training.seed=2 --rows dot_product_,additive_,scaled_ --seeds 3
train table3-all table3 $rows --rows base,A,B,C,D,E,big
train longer table2 $pair --models base,long
