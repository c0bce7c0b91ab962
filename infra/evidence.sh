#!/usr/bin/env bash
# The evidence behind scores and claims (docs/protocol.md): real text, several seeds, in order of worth. It forecasts all parts first. A part goes
# on where it was stopped, since the store keeps what is done; build/evidence/ gets a page after each.
#   DATA=folder OPTIONS='--address auto' bash infra/evidence.sh
# DATA has multi30k/, tatoeba_en_de/ and europarl_sample/: without it, Multi30k is downloaded, and parts with other text are left out.
# STORE: default runs. HARDWARE='--gpus 8 --gpu h100': forecast for it instead of this machine. OPTIONS=--plan shows what would run.
# PEER: the python of an environment with JoeyNMT (docs/benchmarks.md).
set -euo pipefail
[[ ${STORE:-} != *://* ]] || { echo "STORE=$STORE: give a folder; pages are not written from a bucket" >&2; exit 2; }
python=${PYTHON:-.venv/bin/python} store=${STORE:-runs} out=${OUT:-build/evidence} mode=forecast
aiayn() { "$python" -m workflows.cli "$@"; }
missing() { [[ ! -e $1 ]]; }
has() { # FOLDER PART: whether DATA has the text of a part
    [[ -n ${DATA:-} && -e $DATA/$1 ]] || { [[ $mode != forecast ]] || echo "$2: left out, there is no DATA/$1"; false; }
}
train() { # PART TABLE MODULE WORD...: a table's runs and their page; at first their FLOP, hours and disk
    if [[ $mode == forecast ]]; then
        "$python" -m "$3" forecast "${@:4}" --store "$store" ${HARDWARE:-} | sed -nE "s/^total +/$1: /p; s/.*(has all runs.*)/$1: \1/p"
    else
        "$python" -m "$3" "${@:4}" --store "$store" ${OPTIONS:-}
        [[ $mode == plan ]] || aiayn results "$store/$2/multi30k/newest" --out "$out/$1.md" --title "$1"
    fi
}
table() { train "$1" "$2" workflows.cli "${@:2}"; } # PART TABLE OPTION...

# What is no table: JoeyNMT on the same pairs, and decoding by the paper's base with random weights.
peer() {
    missing "$out/prepared/profile.json" && aiayn prepare --profile multi30k "${multi30k[@]}" --out "$out/prepared"
    missing "$out/peer/result.json" && "$PEER" examples/peer_joeynmt.py "$out/prepared" "$out/peer"
    for set in "$out"/peer/test_*; do
        aiayn score --hyp "$set" --ref "$out/prepared/evaluation-${set##*/}/${set##*/}.de" --lang de
    done
}
width_512() {
    missing "$out/europarl" && aiayn split "$DATA"/europarl_sample/train.{en,de}.gz --out "$out/europarl"
    missing "$out/pieces/profile.json" && aiayn prepare --files "$out/europarl/text.toml" --set vocabulary.size=37000 --out "$out/pieces"
    missing "$out/random/joint.model" && "$python" -m examples.random_model "$out/pieces/vocabulary/joint.model" "$out/random"
    head -n 16 "$out/europarl/test.en" >"$out/16.en"
    "$python" -m benchmarks.decoding "$out/random" --src "$out/16.en"
}
other() { # PART FORECAST FUNCTION
    if [[ $mode == run ]]; then "$3" | tee "$out/$1.txt"; else echo "$1: $2"; fi
}

multi30k=(--pairs en-de)
[[ ! -d ${DATA:-}/multi30k ]] || multi30k+=(--data "$DATA/multi30k")
published=(--config examples/multi30k_published.toml --files "$out/published/text.toml" --models base)
kept=(--profile multi30k "${multi30k[@]}" --seeds 5 --set recipes.base.training.keep_checkpoints=20) # to average 20
longer=(--set={recipes.base.training.updates=20000,recipes.{recurrent,convolutional}.training.updates=20536})
rate=training.optimizer.learning_rate_scale
lower=(--set={recipes.base.$rate=0.35,recipes.recurrent.$rate=0.7,recipes.convolutional.$rate=2.8}) # half of the profile's
higher=(--set={recipes.base.$rate=1.4,recipes.recurrent.$rate=2.8,recipes.convolutional.$rate=11.2}) # twice
rows=(--config examples/table3_multi30k.toml "${multi30k[@]}" --seeds 3)
searches=(--choose-decoding --set 'choice.beam_sizes=[1,2,4,8,16]' --set 'choice.length_penalties=[0,0.6,1,1.4,1.8]')

parts() {
    if has multi30k published; then
        missing "$out/published/text.toml" && "$python" examples/multi30k_published.py "$DATA/multi30k" "$out/published"
        table published table2 "${published[@]}"
    fi
    if [[ -n ${PEER:-} ]]; then
        other peer "a run as long as base's, or longer" peer
    elif [[ $mode == forecast ]]; then
        echo "peer: left out, PEER is not set"
    fi
    table competitors table2 "${kept[@]}" --models base,recurrent,convolutional
    table rates-lower table2 --profile multi30k "${multi30k[@]}" --models base,recurrent,convolutional "${lower[@]}"
    table rates-higher table2 --profile multi30k "${multi30k[@]}" --models base,recurrent,convolutional "${higher[@]}"
    table table3-first table3 "${rows[@]}" --rows base,A1,A4,B1,C1,D1,D3,E
    if [[ $mode == forecast ]]; then
        echo "averaging, beam and α: minutes, after the runs of competitors"
    else
        for last in 1 5 10 20; do
            table "averaging-$last" table2 "${kept[@]}" --models base --set "recipes.base.averaging.last=$last"
        done
        [[ $mode == plan ]] || "$python" examples/paired_gains.py "$out"/averaging-{1,5,10,20}-1.csv >"$out/averaging.md"
        table beam-and-alpha table2 "${kept[@]}" --models base "${searches[@]}"
    fi
    if has tatoeba_en_de sizes; then
        missing "$out/tatoeba" && aiayn split "$DATA"/tatoeba_en_de/train.{en,de}.gz --out "$out/tatoeba"
        missing "$out/sizes/160000.toml" && "$python" -m examples.scaling_with_data cut "$out/tatoeba/text.toml" "$out/sizes"
        train sizes table2 examples.scaling_with_data --profile multi30k --models base,recurrent,convolutional \
            $(printf -- "--files $out/sizes/%s.toml " 5000 10000 20000 40000 80000 160000)
    fi
    if has europarl_sample width-512; then other width-512 "about half an hour" width_512; fi
    table table3-all table3 "${rows[@]}"
    table attention-functions table3 --config examples/attention_functions.toml "${multi30k[@]}" --seeds 3 --set grid.training.seed=2 \
        --rows dot_product_,additive_,scaled_
    table competitors-longer table2 --profile multi30k "${multi30k[@]}" --models base,recurrent,convolutional --seeds 3 "${longer[@]}"
    if has multi30k published-3; then table published-3 table2 "${published[@]}" --seeds 3; fi
}
echo "missing runs of each part: FLOP, time, disk"
parts
if [[ ${OPTIONS:-} == *--plan* ]]; then mode=plan; else mode=run && mkdir -p "$out"; fi
parts
