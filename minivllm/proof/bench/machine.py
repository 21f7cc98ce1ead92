"""What a figure depends on beside the code: processor, cores, memory, versions.

Owns: nothing. Interface: machine_facts.
"""

import os
import platform
from importlib import metadata
from typing import Any

from minivllm.attention.selector import auto_backend

PACKAGES = ("torch", "transformers", "numpy", "msgspec", "pyzmq", "tokenizers")


def machine_facts() -> dict[str, Any]:
    """Names and sizes, none of which tells whose machine it is.

    vLLM: collect_env.py::get_env_info (role)
    """
    cpuinfo = _first_values("/proc/cpuinfo")
    flags = cpuinfo.get("flags", cpuinfo.get("Features", "")).split()
    wanted = ("avx2", "avx512f", "avx512_bf16", "amx_bf16", "asimd", "bf16")
    memory = _first_values("/proc/meminfo").get("MemTotal", "")
    return {
        "processor": cpuinfo.get("model name") or platform.processor() or platform.machine(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "cache": cpuinfo.get("cache size", ""),
        "instructions": [flag for flag in wanted if flag in flags],
        "memory_gb": round(int(memory.split()[0]) / 1e6, 1) if memory else None,
        "system": platform.system(),
        "python": platform.python_version(),
        "attention_backend": auto_backend(),
        "versions": {name: _version(name) for name in PACKAGES},
        "load_before": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
    }


def _first_values(path: str) -> dict[str, str]:
    """Name -> first value of a file of lines like `name : value`."""
    found: dict[str, str] = {}
    try:
        with open(path) as file:
            for line in file:
                name, _, value = line.partition(":")
                found.setdefault(name.strip(), value.strip())
    except OSError:
        return {}
    return found


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
