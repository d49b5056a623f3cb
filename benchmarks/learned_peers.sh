#!/bin/bash
# Measure learned peers with published weights, Go-ICP and WSDesc. About 5 minutes on an H200.
#   benchmarks/learned_peers.sh DATA RESULTS
# DATA holds indoor/test, tls, objects, wild, modelnet40_ply_hdf5_2048 and peers (weights). Started again, it
# continues. Then: python -m benchmarks.report RESULTS --title "Learned peers" --out docs/learned-peers.md
# Settings: KEYPOINTS per scan (5000,1000 for two counts), SHAPES of ModelNet40, SECONDS_LEFT in all, DEVICE, PY (the interpreter).
set -u
data=$1 out=$2
keypoints=${KEYPOINTS:-1000} shapes=${SHAPES:-600} device=${DEVICE:-cuda} py=${PY:-python3}
end=$((SECONDS + ${SECONDS_LEFT:-330}))
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-4}
mkdir -p "$out/logs"

run() { # log file, then the command; stops at the end of the time
    local log="$out/logs/$1.txt" left=$((end - SECONDS))
    shift
    [ "$left" -lt 5 ] && { echo "no time left for: $*" >> "$log"; return 1; }
    timeout "$left" "$py" -m "$@" >> "$log" 2>&1
}

benchmark() { # log file, benchmark, folder of the data, further arguments
    local log=$1 name=$2 root=$3
    shift 3
    run "$log" wsdesc benchmark "$name" "$root" --peer-weights "$data/peers" --device "$device" --out "$out" "$@"
}

descriptors=(--model indoor --model indoor-fast --peer shot --peer spinnet --peer lmvd)

# Times first, with nothing beside them.
benchmark timing timing "$data/indoor/test" "${descriptors[@]}" --pairs 2 --repeats 1 \
    --keypoints "${keypoints##*,}" --sizes 10000 --counts "${keypoints##*,}"

(
    for flags in "--low-overlap" "" "--rotated --low-overlap" "--rotated"; do
        # shellcheck disable=SC2086
        benchmark kitchen 3dmatch "$data/indoor/test" "${descriptors[@]}" --keypoints "$keypoints" $flags
    done
) &
(
    run wild benchmarks.wild_peers "$data/wild" --weights "$data/peers" --peer spinnet --peer lmvd \
        --keypoints "${keypoints##*,}" --device "$device" --out "$out/wild"
    for flags in "" "--rotated"; do
        for set in tls objects; do
            # shellcheck disable=SC2086
            benchmark pairs pairs "$data/$set" "${descriptors[@]}" --keypoints "$keypoints" $flags
        done
    done
) &
(
    benchmark pointnetlk modelnet40 "$data/modelnet40_ply_hdf5_2048" --model objects --peer pointnetlk \
        --limit "$shapes"
) &
(
    # The report joins rows of several folders that belong to the same benchmark.
    for flags in "" "--rotated"; do
        # shellcheck disable=SC2086
        run register wsdesc benchmark pairs "$data/tls" --register indoor-fast --keypoints "$keypoints" \
            --device "$device" --out "$out/register" $flags
        # shellcheck disable=SC2086
        run register wsdesc benchmark 3dmatch "$data/indoor/test" --register indoor-fast \
            --keypoints "$keypoints" --low-overlap --device "$device" --out "$out/register" $flags
    done
) &
(
    # Growing numbers of shapes: the last one that is finished counts.
    for limit in 25 50 100 200 400; do
        [ "$limit" -le "$shapes" ] || break
        run go-icp wsdesc benchmark modelnet40 "$data/modelnet40_ply_hdf5_2048" --peer go-icp \
            --peer go-icp-trimmed --protocol prnet-clean --protocol prnet-noisy --limit "$limit" \
            --device cpu --out "$out/go-icp" || break
    done
) &
wait
for log in "$out"/logs/*.txt; do echo "== $log"; tail -n 3 "$log"; done
