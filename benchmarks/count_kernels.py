"""Counts the kernels of a training step, compiled for a GPU without having it.

    pip install --no-deps jax-cuda13-plugin==VERSION jax-cuda13-pjrt==VERSION \\
        nvidia-cuda-nvcc nvidia-nvvm nvidia-cudnn-cu13 nvidia-cublas
    python benchmarks/count_kernels.py --preset=base --output=step.hlo

VERSION is a version of JAX; this was tried with 0.10.2. `--device=cpu` compiles
for this machine. The program is the step of accelerator.py in mixed_bfloat16.
The script counts the operations that run one after the other: on a GPU each is
a launch, or a few of a library. Without the GPU nothing is tuned: Triton
computes all products. Compare the counts of two commits. They do not measure
time.
"""

import argparse
import collections
import os
import pathlib
import re
import sys

H200 = """
gpu_device_info {
  threads_per_block_limit: 1024
  threads_per_warp: 32
  shared_memory_per_block: 49152
  shared_memory_per_core: 233472
  threads_per_core_limit: 2048
  core_count: 132
  fpus_per_core: 128
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  memory_bandwidth: 4900000000000
  l2_cache_size: 62914560
  clock_rate_ghz: 1.98
  device_memory_size: 150000000000
  shared_memory_per_block_optin: 232448
  cuda_compute_capability { major: 9 }
  registers_per_core_limit: 65536
  registers_per_block_limit: 65536
}
platform_name: "CUDA"
dnn_version_info { major: 9 minor: 12 }
runtime_version { major: 13 }
device_description_str: "NVIDIA H200"
"""
# HLO operations without a kernel.
FREE = {
    "parameter",
    "constant",
    "tuple",
    "get-tuple-element",
    "bitcast",
    "after-all",
    "partition-id",
}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--preset", default="base")
    parser.add_argument("--device", choices=["h200", "cpu"], default="h200")
    parser.add_argument("--rows", type=int, default=390)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--output", help="file for the text of the program")
    arguments = parser.parse_args()
    os.environ["KERAS_BACKEND"] = "jax"
    os.environ["JAX_PLATFORMS"] = "cpu"
    if arguments.device == "h200":
        flags = os.environ.get("XLA_FLAGS", "")
        os.environ["XLA_FLAGS"] = f"{flags} --xla_gpu_autotune_level=0"
    root = pathlib.Path(__file__).parents[1]
    sys.path.insert(0, str(root))
    program = compiled(arguments)
    text = program.as_text()
    if arguments.output:
        pathlib.Path(arguments.output).write_text(text, encoding="utf-8")
    names = kernels_in(text)
    print(f"{len(names)} kernels")
    for name, number in collections.Counter(names).most_common(30):
        print(f"{number:6d} {name}")
    sizes = program.memory_analysis()
    print(f"{sizes.temp_size_in_bytes / 2**20:,.1f} MiB of temporary arrays")


def compiled(arguments):
    """Compiles the program of a step. Returns a `jax.stages.Compiled`."""
    import jax
    import numpy as np
    from accelerator import config_of
    from accelerator_jax import jax_step_of
    from jax.sharding import NamedSharding, PartitionSpec

    from keras_transformer.training.jax_step import AXIS

    devices = h200() if arguments.device == "h200" else jax.devices()
    mesh = jax.sharding.Mesh(np.array(devices[:1]), (AXIS,))
    config = config_of(arguments.preset, small=False)
    step = jax_step_of(config, "mixed_bfloat16", mesh)
    ids = jax.ShapeDtypeStruct(
        (arguments.rows, arguments.length),
        "int32",
        sharding=NamedSharding(mesh, PartitionSpec(AXIS)),
    )
    inputs = {"source_ids": ids, "target_ids": ids}
    return step.lower(step.layout, inputs, ids, np.float32(0)).compile()


def h200():
    """Returns a device for compilation only."""
    from jax._src import xla_bridge
    from jax.experimental import topologies

    xla_bridge.discover_pjrt_plugins()
    # JAX looks for a device of the platform "gpu", which does not exist here.
    canonical = xla_bridge.canonicalize_platform
    xla_bridge.canonicalize_platform = lambda platform: (
        "cuda" if platform in ("cuda", "gpu") else canonical(platform)
    )
    return topologies.get_topology_desc(
        platform="cuda", target_config=H200, topology="1x1x1"
    ).devices


def kernels_in(program):
    """Returns the names, without numbers, of the operations that run.

    >>> entry = "ENTRY %main {\\n  %x.1 = f32[2]{0} add(), calls=%z\\n}"
    >>> kernels_in(entry + "\\n\\n%z {\\n  %u = f32[] add(%v)\\n}")
    ['x']
    """
    inner = set(re.findall(r"(?:calls|to_apply)=%?([\w.\-]+)", program))
    inner -= set(re.findall(r" call\(.*to_apply=%?([\w.\-]+)", program))
    names = []
    for computation in program.split("\n\n"):
        head = re.match(r"\s*(?:ENTRY )?%?([\w.\-]+) ", computation)
        if head is None or head[1] in inner:
            continue
        for name, operation in re.findall(
            r"\n\s+(?:ROOT )?%?([\w.\-]+) = (?:\([^=]*?\)|\S+) ([\w\-]+)\(",
            computation,
        ):
            if operation not in FREE:
                names.append(re.sub(r"[.\d]+$", "", name))
    return names


if __name__ == "__main__":
    main()
