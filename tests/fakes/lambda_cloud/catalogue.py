"""The fake cloud's offers, unless a test says otherwise: regions, types, prices."""

from typing import Any

REGIONS = {
    "us-east-1": "Virginia, USA",
    "us-east-3": "Washington, DC, USA",
    "us-west-1": "California, USA",
    "us-west-3": "Utah, USA",
    "us-south-1": "Texas, USA",
    "europe-central-1": "Germany",
}


def region(name: str) -> dict[str, str]:
    return {"name": name, "description": REGIONS.get(name, name)}


def _type(
    name: str, gpu: str, cents: int, gpus: int, vcpus: int, memory: int, storage: int
) -> dict[str, Any]:
    return {
        "name": name,
        "description": f"{gpus}x {gpu}",
        "gpu_description": gpu,
        "price_cents_per_hour": cents,
        "specs": {"vcpus": vcpus, "memory_gib": memory, "storage_gib": storage, "gpus": gpus},
    }


def types() -> dict[str, dict[str, Any]]:
    """Instance types by name, with prices in cents an hour as once seen."""
    made = [
        _type("gpu_1x_a10", "A10 (24 GB PCIe)", 75, 1, 30, 200, 1400),
        _type("gpu_1x_gh200", "GH200 (96 GB)", 149, 1, 64, 432, 4096),
        _type("gpu_1x_h100_pcie", "H100 (80 GB PCIe)", 329, 1, 26, 200, 1024),
        _type("gpu_1x_h100_sxm5", "H100 (80 GB SXM5)", 429, 1, 26, 225, 2816),
        _type("gpu_8x_h100_sxm5", "H100 (80 GB SXM5)", 3192, 8, 208, 1800, 22528),
    ]
    return {each["name"]: each for each in made}


def capacity() -> dict[str, dict[str, int]]:
    """How many more of each type each region can start."""
    return {
        "gpu_1x_a10": {"us-east-1": 16, "us-west-1": 16},
        "gpu_1x_gh200": {"us-east-3": 4},
        "gpu_1x_h100_pcie": {"us-west-3": 4},
        "gpu_1x_h100_sxm5": {"us-south-1": 2},
    }
