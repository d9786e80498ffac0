#!/usr/bin/env bash
# Measure one NVIDIA GPU without a network, and write all results into one folder (docs/guides/gpu.md).
#
#   agent/bench/gpu/gpu.sh                  on a GPU; stand-ins replace missing weights
#   agent/bench/gpu/gpu.sh --dry            run each part once on the processor, with small models
#
# PYTHON: the environment with Rejoinder and vLLM in it. LLM, WHISPER: folders with a real language model and a real
# recogniser, by their absolute paths. SHAPE: of the stand-in, 8b or 30b-a3b. OUT: the folder of the results.
# REJOINDER_SPEECH: recordings; without them, turns, calls and load are not measured.
set -uo pipefail
cd "$(dirname "$0")/../../.."
PYTHON=${PYTHON:-.venv/bin/python}
OUT=${OUT:-out/gpu-$(date +%Y%m%d-%H%M%S)}
SHAPE=${SHAPE:-8b}
rejoinder=("$PYTHON" -m rejoinder)
failed=()
mkdir -p "$OUT"
OUT=$(cd "$OUT" && pwd)

# part NAME COMMAND...: run the command, keep its output, and go on if it fails.
part() {
    local name=$1
    shift
    echo "== $name: $*" | tee "$OUT/$name.txt"
    "$@" 2>&1 | tee -a "$OUT/$name.txt" || failed+=("$name")
}

if [[ ${1:-} == --dry ]]; then
    profile=cpu-small
    llm=(--shape tiny --callers 1,2 --rounds 1 --tokens 8 --set enforce_eager=true --set kv_cache_memory_bytes=67108864)
    whisper=(--shape tiny --device cpu --batches 1,2 --rounds 1)
    calls=(--clips 1)
    turns=(--limit 4)
    export REJOINDER_VLLM_ENFORCE_EAGER=true REJOINDER_VLLM_KV_CACHE_MEMORY_BYTES=67108864
    export REJOINDER_VLLM_MAX_MODEL_LEN=2048 REJOINDER_VLLM_MAX_NUM_SEQS=4
    SHAPE=tiny
else
    nvidia-smi | tee "$OUT/nvidia-smi.txt" || { echo "nvidia-smi finds no NVIDIA GPU; --dry needs none"; exit 1; }
    profile=gpu
    llm=(--shape "$SHAPE" --callers 1,2,4,8,16,32,64 --set gpu_memory_utilization=0.8)
    whisper=(--shape large-v3-turbo --device cuda --batches 1,2,4,8,16,32)
    calls=(--clips 44)
    turns=(--limit 400 --cuda)
fi
if [[ -n ${LLM:-} ]]; then
    llm+=(--model "$LLM")
else
    LLM=$OUT/stand-in
    export REJOINDER_VLLM_LOAD_FORMAT=dummy
    "$PYTHON" -c 'import pathlib, sys; from rejoinder.agent.bench.gpu.stand_in import language_model
language_model(pathlib.Path(sys.argv[1]), sys.argv[2])' "$LLM" "$SHAPE" || failed+=(stand-in)
fi
stt=whisper:tiny.en # random weights recognise no words, so no turn would end
if [[ -n ${WHISPER:-} ]]; then
    whisper+=(--model "$WHISPER")
    stt=whisper:$WHISPER
fi

export REJOINDER_PROFILE=$profile
models=(--llm "vllm:$LLM" --stt "$stt")
part doctor "${rejoinder[@]}" doctor "${models[@]}" --port 0
part llm "$PYTHON" -m rejoinder.agent.bench.gpu.llm "${llm[@]}" --json "$OUT/llm.json"
part whisper "$PYTHON" -m rejoinder.agent.bench.gpu.whisper "${whisper[@]}" --json "$OUT/whisper.json"
if [[ -d ${REJOINDER_SPEECH:-} ]]; then
    part turns "${rejoinder[@]}" bench turns --stt "$stt" "${turns[@]}" --keep "$OUT/seen.json.gz" --json "$OUT/turns.json"
    part calls "${rejoinder[@]}" bench "${models[@]}" "${calls[@]}" --json "$OUT/calls.json"
    sessions=1,2,4,8,16,32,64
    [[ $profile == gpu ]] || sessions=1
    part load "${rejoinder[@]}" bench load "${models[@]}" --sessions "$sessions" --json "$OUT/load.json"
else
    echo "calls were not measured: REJOINDER_SPEECH names no folder of recordings" | tee "$OUT/calls.txt"
fi

echo "The results are in $OUT"
if ((${#failed[@]})); then
    echo "failed: ${failed[*]}"
    exit 1
fi
