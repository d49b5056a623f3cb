#!/bin/bash
# Train the pose networks on ModelNet40, all at the same time on one GPU, then evaluate them on test shapes, beside `register`.
# Descriptors: PEERS="ppf-foldnet capsulenet s2cnn-512 s2cnn-32" (the first two with their recipes for shapes).
#   benchmarks/pose_networks.sh modelnet40_ply_hdf5_2048/ RESULTS
# RESULTS/PEER receives the tables, RESULTS/run-PEER the training. A row of the documentation took 4.2 minutes and 300 shapes.
# Settings: PEERS, MINUTES of training, SHAPES, DEVICE, PY (the interpreter).
# Then: python -m benchmarks.report --merge RESULTS/{dcp,…} --title "Learned peers" --out docs/learned-peers.md
set -u
shapes=$1 out=$2
peers=${PEERS:-dcp rpmnet deepgmr arl prnet omnet} device=${DEVICE:-cuda} py=${PY:-python3}
recipes=$(dirname "$0")/../recipes/peers
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-2}
mkdir -p "$out/logs"

one() { # peer
    local protocols=(--protocol prnet-clean --protocol prnet-noisy)
    case $1 in dcp | rpmnet | deepgmr) protocols+=(--protocol rpm-45 --protocol rpm-180) ;; esac
    local recipe=$recipes/$1-shapes.yaml
    [ -f "$recipe" ] || recipe=$recipes/$1.yaml
    "$py" -m wsdesc train --peer "$1" "$shapes" --config "$recipe" --minutes "${MINUTES:-4.2}" \
        --device "$device" --out "$out/run-$1" &&
        "$py" -m wsdesc benchmark modelnet40 "$shapes" --peer "$1" --peer-weights "$out/run-$1" "${protocols[@]}" \
            --limit "${SHAPES:-300}" --device "$device" --out "$out/$1"
}

for peer in $peers; do
    one "$peer" > "$out/logs/$peer.txt" 2>&1 &
done
"$py" -m wsdesc benchmark modelnet40 "$shapes" --register objects --protocol rpm-45 --protocol rpm-180 \
    --limit "${SHAPES:-300}" --device "$device" --out "$out/register" > "$out/logs/register.txt" 2>&1 &
wait
grep -h '^| \(method\|dcp\|rpmnet\|deepgmr\|arl\|prnet\|omnet\)' "$out"/logs/*.txt
