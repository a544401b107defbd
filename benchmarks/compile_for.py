"""Compiles a recipe's training step for TPUs and GPUs that are not there.

    pip install 'jax[tpu]'    # or 'jax[cuda12]', for h100
    python benchmarks/compile_for.py --target=v5e-8 --recipe=wmt14_ende_big

libtpu has the compiler of the TPU and needs no device: what is compiled here is
the program that the TPU would run. A target is a slice by its name at Google
Cloud (v5e-8, v5p-8, v6e-8), a generation with a topology (v5e:2x4), or a number
of GPUs in one machine (h100-1, h100-8). Without a GPU, JAX does not try which
of several kernels is the fastest, and counts no FLOPs: for GPUs only memory and
collectives are the compiler's. The batch
has the shape that needs the most memory: rows of --length tokens, by default
the recipe's `max_length`, as many as --batch_tokens has room for. With --search
the recipe's search of --rows sources for each chip is compiled instead.

Prints for each program: memory of a chip by purpose; FLOPs by the compiler and
by `trainers/experiments/formulas.py`; collectives with their bytes; and the
time that a step takes at least, at the published rates of the chip. --largest
looks for the largest batch that fits into a chip.

Nothing runs, so nothing here is a measured speed. Each program is compiled in a
process of its own. TensorFlow is not needed.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import re
import resource
import time

from processes import measure_apart
from results import add_flag, record

GIB = 2**30


@dataclasses.dataclass(frozen=True)
class Chip:
    """The published rates of a chip, and the memory limit of its compiler.

    See docs.cloud.google.com/tpu/docs/v5e, v5p and v6e; nvidia.com/h100 (SXM).

    Attributes:
        hbm: Bytes that the compiler lets a program use; of a GPU, all.
        flops: Dense bf16 FLOPs a second.
        hbm_bytes: Bytes a second from and to memory.
        link_bytes: Bytes a second to other chips, over all links, one way.
        cores: TensorCores; slices of v5p are named after them.
    """

    hbm: float
    flops: float
    hbm_bytes: float
    link_bytes: float
    cores: int = 1


CHIPS = {
    "v5e": Chip(15.75 * GIB, 197e12, 819e9, 200e9),
    "v5p": Chip(95.74 * GIB, 459e12, 2765e9, 600e9, cores=2),
    "v6e": Chip(31.25 * GIB, 918e12, 1600e9, 400e9),
    "h100": Chip(79.1 * GIB, 989e12, 3350e9, 450e9),
}
TOPOLOGIES = {
    "v5e": {1: "1x1", 4: "2x2", 8: "2x4", 16: "4x4", 256: "16x16"},
    "v5p": {1: "1x1x1", 4: "2x2x1", 8: "2x2x2", 16: "2x2x4", 256: "4x8x8"},
    "v6e": {1: "1x1", 4: "2x2", 8: "2x4", 16: "4x4", 256: "16x16"},
}
ENVIRONMENT = {
    "KERAS_BACKEND": "jax",
    "JAX_PLATFORMS": "cpu",  # what little runs, runs here
    "TPU_SKIP_MDS_QUERY": "1",  # no server that knows of a TPU
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",  # no TPU that one process would lock
    "XLA_FLAGS": "--xla_gpu_autotune_level=0",  # no GPU to try kernels on
}
MARGIN = 0.08  # --largest stops at a batch that is so near the limit


def main():
    arguments = parse_arguments()
    if arguments.child:
        print(json.dumps(compile_case(json.loads(arguments.child))))
        return
    known = read_results(arguments.results)
    rows = []
    for recipe in arguments.recipe:
        for target in arguments.target:
            case = case_of(arguments, recipe, target)
            found = find(case, known, arguments.results)
            if arguments.largest:
                case, found = find_largest(case, found, known, arguments)
            if arguments.json:
                print(json.dumps({**case, **found}), flush=True)
            else:
                print(describe(case, found), end="\n\n", flush=True)
            rows.append(row_of(case, found))
    if arguments.record:
        name = "compile_for_search" if arguments.search else "compile_for"
        title = "Compiled for TPUs, never run on one: a training step"
        if arguments.search:
            title = title.replace("a training step", "the beam search")
        if arguments.largest:
            name += "_largest"
            title += ", the largest batch that fits"
        record(name, title, {"programs": rows}, versions=versions())


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )

    def words(text):
        return text.split(",")

    parser.add_argument(
        "--target",
        type=words,
        default=["v5e-8"],
        help="with commas; v5e-256@400000 sets its batch_tokens",
    )
    parser.add_argument("--recipe", type=words, default=["wmt14_ende_base"])
    parser.add_argument(
        "--batch_tokens",
        type=int,
        help="tokens of a side of the global batch; default: the recipe's",
    )
    parser.add_argument("--length", type=int, help="tokens of a row")
    parser.add_argument(
        "--precision",
        default="mixed_bfloat16",
        choices=["float32", "mixed_bfloat16"],
    )
    parser.add_argument("--remat", default="none", choices=["none", "layers"])
    parser.add_argument("--largest", action="store_true")
    parser.add_argument("--search", action="store_true")
    parser.add_argument(
        "--rows", type=int, default=64, help="sources of a chip, with --search"
    )
    parser.add_argument("--json", action="store_true", help="a line for each")
    parser.add_argument(
        "--results", type=pathlib.Path, help="file of programs, kept and read"
    )
    add_flag(parser)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    for target in arguments.target:
        try:
            parse_target(target.partition("@")[0])
        except (AttributeError, KeyError, ValueError):
            parser.error(f"unknown target: {target}")
    if arguments.largest and arguments.search:
        parser.error("--largest is for training steps")
    return arguments


def parse_target(name):
    """Generation, topology and chips of a slice.

    >>> parse_target("v5e-8"), parse_target("v5p-8"), parse_target("v6e:4x4")
    (('v5e', '2x4', 8), ('v5p', '2x2x1', 4), ('v6e', '4x4', 16))
    """
    generation, separator, rest = re.fullmatch(
        r"(\w+)([-:])([\dx]+)", name
    ).groups()
    if generation == "h100":
        return generation, f"1x1x{int(rest)}", int(rest)
    if separator == "-":
        chips = int(rest) // CHIPS[generation].cores
        return generation, TOPOLOGIES[generation][chips], chips
    CHIPS[generation]  # known?
    chips = 1
    for size in rest.split("x"):
        chips *= int(size)
    return generation, rest, chips


def case_of(arguments, recipe, target):
    """The program to compile for a recipe and a target, JSON."""
    from trainers.paper import read_recipe

    data = read_recipe(recipe).data
    target, _, tokens = target.partition("@")
    tokens = int(tokens or arguments.batch_tokens or data.batch_tokens)
    length = arguments.length or data.max_length
    case = {"recipe": recipe, "target": target, "length": length}
    case["precision"] = arguments.precision
    chips = parse_target(target)[2]
    if arguments.search:
        return {**case, "search": True, "rows": arguments.rows * chips}
    # A chip has a row at least.
    rows = max(tokens // length // chips, 1) * chips
    return {**case, "remat": arguments.remat, "rows": rows}


def find_largest(case, found, known, arguments):
    """The largest batch that compiles, and the program.

    Memory is about linear in the rows: each guess is on the straight line
    through the last program that fits. The search ends at a program that needs
    nearly all memory, or is nearly as large as one that does not fit.
    """
    generation, _, chips = parse_target(case["target"])
    hbm = CHIPS[generation].hbm
    rows = case["rows"] // chips
    fits, too_large = 0, None  # rows of a chip
    best = case, found
    while True:
        if "error" in found or sum(found["memory"].values()) > hbm:
            too_large = rows
        else:
            fits, best = rows, ({**case, "rows": rows * chips}, found)
            memory = found["memory"]
            free = hbm - sum(memory.values())
            if free < MARGIN * hbm:
                return best
            rows += int((1 - MARGIN / 2) * free * rows / memory["temporaries"])
        if too_large is not None:
            if too_large - fits <= max(1, MARGIN * too_large):
                return best
            if not fits or not fits < rows < too_large:
                rows = (fits + too_large) // 2
        found = find({**case, "rows": rows * chips}, known, arguments.results)


def read_results(path):
    """Programs that were compiled: JSON text of the case -> what was found."""
    if path is None or not path.exists():
        return {}
    records = map(json.loads, path.read_text().splitlines())
    return {json.dumps(r["case"]): r["found"] for r in records}


def find(case, known, path):
    """The result of a program: a known one, or else it is compiled now."""
    key = json.dumps(case)
    if key not in known:
        known[key] = measure_apart(__file__, case, ENVIRONMENT)
        if path is not None:
            with open(path, "a") as file:
                line = {"case": case, "found": known[key]}
                file.write(json.dumps(line) + "\n")
    return known[key]


# What is shown


def describe(case, found):
    """A program as text."""
    generation, topology, chips = parse_target(case["target"])
    what = "the search" if case.get("search") else "a step"
    lines = [
        f"{case['recipe']} on {case['target']}: {what} of {case['rows']:,} rows"
        f" of {case['length']} tokens on {chips} chips ({topology}),"
        f" {case['precision']}"
    ]
    if "error" in found:
        return "\n".join([*lines, f"  does not fit: {found['error']}"])
    hbm = CHIPS[generation].hbm
    memory = found["memory"]
    parts = ", ".join(f"{k} {v / GIB:.2f}" for k, v in memory.items())
    total = sum(memory.values())
    lines.append(
        f"  memory of a chip, GiB: {parts}; {total / GIB:.2f} of"
        f" {hbm / GIB:.2f} ({total / hbm:.0%})"
    )
    lines.append(
        f"  compiled in {found['compile_seconds']:.0f} s of a CPU core's time,"
        f" with {found['host_bytes'] / GIB:.1f} GiB"
    )
    for kind, group in found["collectives"].items():
        lines.append(
            f"  {kind}: {group['count']}, {group['bytes'] / 1e6:,.1f} MB"
        )
    if case.get("search"):
        return "\n".join(lines)
    flops = f"  FLOPs of a chip: {found['formula_flops']:.3e} by formula"
    if found["flops"]:
        ratio = found["flops"] / found["formula_flops"]
        flops += f", {ratio:.3f} times as many by the compiler"
    lines.append(flops)
    bounds = roofline(generation, chips, found)
    shown = ", ".join(f"{k} {1e3 * v:.1f}" for k, v in bounds.items())
    lines.append(f"  a step takes, ms: {shown}")
    tokens = 2 * case["rows"] * case["length"]
    best = max(bounds["products"], bounds["links"])
    lines.append(f"  at best {tokens / best:,.0f} source + target tokens/s")
    return "\n".join(lines)


def roofline(generation, chips, found):
    """Seconds that a step needs for its parts at the published rates.

    The parts may overlap, so a step takes at least as long as the products or
    the links need. "memory" counts what each operation reads and writes, also
    what the compiler keeps on the chip: it is no lower bound.
    """
    chip = CHIPS[generation]
    sent = sum(
        SENT[kind](chips) * group["bytes"]
        for kind, group in found["collectives"].items()
    )
    seconds = {"products": found["formula_flops"] / chip.flops}
    if found["bytes_accessed"]:
        seconds["memory"] = found["bytes_accessed"] / chip.hbm_bytes
    return {**seconds, "links": sent / chip.link_bytes}


# Bytes that a chip of n sends in a ring, for each byte of the result.
SENT = {
    "all-reduce": lambda n: 2 * (n - 1) / n,
    "all-gather": lambda n: (n - 1) / n,
    "reduce-scatter": lambda n: n - 1,
    "all-to-all": lambda n: (n - 1) / n,
    "collective-permute": lambda n: 1,
}


def row_of(case, found):
    """A program as a row of the table."""
    generation, _, chips = parse_target(case["target"])
    tokens = case["rows"] * case["length"]
    row = {"recipe": case["recipe"], "target": case["target"], "chips": chips}
    row |= {"rows x tokens": f"{case['rows']} x {case['length']}"}
    row |= {"tokens a side, chip": round(tokens / chips)}
    columns = ("weights", "optimizer", "temporaries", "other", "total", "HBM")
    row |= dict.fromkeys((f"{name} GiB" for name in columns), "")
    if not case.get("search"):
        row |= dict.fromkeys(
            ("TFLOP, chip", "compiler / formula", "all-reduce MB"), ""
        )
        row |= dict.fromkeys(("products ms", "memory ms", "links ms"), "")
    row |= {"compile s": ""}
    hbm = CHIPS[generation].hbm
    if "error" in found:
        return row | {"total GiB": "does not fit", "HBM GiB": gib(hbm)}
    memory = dict(found["memory"])
    total = sum(memory.values())
    for name in ("weights", "optimizer", "temporaries"):
        row[f"{name} GiB"] = gib(memory.pop(name, 0))
    row["other GiB"] = gib(sum(memory.values()))
    row |= {"total GiB": gib(total), "HBM GiB": gib(hbm)}
    row["compile s"] = round(found["compile_seconds"])
    if case.get("search"):
        return row
    row["TFLOP, chip"] = round(found["formula_flops"] / 1e12, 3)
    if found["flops"]:
        row["compiler / formula"] = round(
            found["flops"] / found["formula_flops"], 3
        )
    reduced = found["collectives"].get("all-reduce", {"bytes": 0})
    row["all-reduce MB"] = round(reduced["bytes"] / 1e6, 1)
    for name, seconds in roofline(generation, chips, found).items():
        row[f"{name} ms"] = round(1e3 * seconds, 2)
    return row


def gib(size):
    return round(size / GIB, 2)


def versions():
    """Package -> version, of those that compile."""
    import importlib.metadata

    packages = ("jax", "libtpu", "keras", "numpy")
    return {name: importlib.metadata.version(name) for name in packages}


# In the process of a program


def compile_case(case):
    """Compiles a program; what the compiler says of it, JSON."""
    import jax

    from trainers.paper import read_recipe

    configuration = read_recipe(case["recipe"])
    mesh = make_mesh(case["target"])
    make = make_search if case.get("search") else make_step
    function, arguments, sizes = make(configuration, case, mesh)
    started = time.process_time()
    lowered = function.lower(*arguments)
    try:
        compiled = lowered.compile()
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        return {"error": str(error).splitlines()[0]}
    seconds = time.process_time() - started
    analysis = compiled.memory_analysis()
    cost = compiled.cost_analysis() or {}  # none for GPUs
    known = sum(sizes.values())
    memory = {
        **sizes,
        "batch": analysis.argument_size_in_bytes - known,
        "results": analysis.output_size_in_bytes - analysis.alias_size_in_bytes,
        "temporaries": analysis.temp_size_in_bytes,
        "code": analysis.generated_code_size_in_bytes,
    }
    found = {
        "memory": memory,
        "flops": cost.get("flops"),
        "bytes_accessed": cost.get("bytes accessed"),
        "collectives": collectives_of(compiled.as_text()),
        "compile_seconds": seconds,
        "host_bytes": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
    }
    if not case.get("search"):
        found["formula_flops"] = formula_flops(configuration, case)
    return found


# An H100 as XLA describes it, from openxla/xla's pull request 25919.
H100 = """
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
  memory_bandwidth: 3352320000000
  l2_cache_size: 52428800
  clock_rate_ghz: 1.98
  device_memory_size: 84929347584
  shared_memory_per_block_optin: 232448
  cuda_compute_capability { major: 9 }
  registers_per_core_limit: 65536
  registers_per_block_limit: 65536
}
platform_name: "CUDA"
dnn_version_info { major: 9 minor: 7 }
runtime_version { major: 12 minor: 8 patch: 0 }
device_description_str: "NVIDIA H100 80GB HBM3"
"""


def make_mesh(target):
    """The chips of a slice that is not there, as a mesh of one axis."""
    import numpy as np
    from jax.experimental import topologies
    from jax.sharding import Mesh

    from keras_transformer.training.jax_step import AXIS

    generation, topology, chips = parse_target(target)
    if generation == "h100":
        options = {"platform": "cuda", "topology": topology}
        options["target_config"] = H100
    else:
        options = {"platform": "tpu"}
        options["topology_name"] = f"{generation}:{topology}"
        if chips == 1:  # part of a host; by default a host has four chips
            options["chips_per_host_bounds"] = (1, 1, 1)
    description = topologies.get_topology_desc(**options)
    return Mesh(np.array(description.devices), (AXIS,))


def formula_flops(configuration, case):
    """FLOPs of a chip in a step, by the formula of docs/paper.md."""
    from trainers.experiments.formulas import training_flops

    chips = parse_target(case["target"])[2]
    tokens = case["rows"] * case["length"]
    return training_flops(configuration.model, 1, tokens, case["length"]) / (
        chips
    )


SIZES = {"pred": 1, "s8": 1, "u8": 1, "bf16": 2, "f16": 2, "u16": 2, "s16": 2}
SIZES |= {"f32": 4, "s32": 4, "u32": 4, "f64": 8, "s64": 8, "u64": 8}


def collectives_of(program):
    """Kind -> number of collectives and bytes of their results on a chip.

    >>> collectives_of(
    ...     "%a = (f32[2,3]{1,0}, bf16[4]{0}) all-reduce(%b, %c), x=1")
    {'all-reduce': {'count': 1, 'bytes': 32}}
    """
    found = {}
    for match in re.finditer(
        rf" = (.+?) ({'|'.join(SENT)})(-start)?\(", program
    ):
        shapes, kind, starts = match.groups()
        sizes = [
            _bytes_of(*shape)
            for shape in re.findall(r"(\w+)\[([\d,]*)\]", shapes)
        ]
        if starts and kind != "all-reduce":
            sizes = sizes[len(sizes) // 2 :]  # operands, then results
        group = found.setdefault(kind, {"count": 0, "bytes": 0})
        group["count"] += 1
        group["bytes"] += sum(sizes)
    return found


def _bytes_of(dtype, dimensions):
    """Bytes of an array in the text of a program."""
    size = SIZES.get(dtype, 0)
    for number in filter(None, dimensions.split(",")):
        size *= int(number)
    return size


# The programs


def make_step(configuration, case, mesh):
    """The training step of the JAX engine on a mesh.

    Returns:
        The jitted function of state and batch, which donates the state; their
        shapes; and the bytes of the state on a device, by purpose.
    """
    import jax
    from jax.sharding import PartitionSpec

    from keras_transformer.model import Transformer
    from keras_transformer.training.jax_step import AXIS, JaxStep
    from keras_transformer.training.rematerialization import REMATERIALIZE
    from trainers.run.optimization import make_optimizer, make_schedule

    training = configuration.training
    parts = []

    def initialize():
        """The initial state; the parts have no values after `eval_shape`."""
        model = Transformer(configuration.model, dtype=case["precision"])
        REMATERIALIZE[case["remat"]](model)
        schedule = make_schedule(configuration.model, training)
        optimizer = make_optimizer(schedule, training, model)
        parts.append(JaxStep(model, optimizer, mesh, training.label_smoothing))
        return jax.tree.map(lambda v: v.value, parts[0].variables)

    state = jax.eval_shape(initialize)
    [step] = parts
    place = placed(mesh)
    ids = jax.ShapeDtypeStruct((case["rows"], case["length"]), "int32")
    batch = place((ids, ids), PartitionSpec(AXIS))
    elapsed = place(jax.ShapeDtypeStruct((), "float32"), PartitionSpec())
    inputs = {"source_ids": batch[0], "target_ids": batch[0]}
    shapes = place(state, PartitionSpec()), inputs, batch[1], elapsed
    sizes = {
        "weights": sum(x.size * x.dtype.itemsize for x in state.trained),
        "optimizer": sum(x.size * x.dtype.itemsize for x in state.optimizer),
    }
    return step, shapes, sizes


def placed(mesh):
    """A function that says where the arrays of a tree lie on the mesh."""
    import jax
    from jax.sharding import NamedSharding

    def place(tree, spec):
        sharding = NamedSharding(mesh, spec)
        return jax.tree.map(
            lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding),
            tree,
        )

    return place


def make_search(configuration, case, mesh):
    """The recipe's search of a batch of sources; as `make_step`."""
    import jax
    import keras
    from jax.sharding import PartitionSpec

    from keras_transformer.model import Transformer
    from keras_transformer.training.jax_step import AXIS
    from keras_transformer.translation.inference import Inference

    parts = []

    def initialize():
        model = Transformer(configuration.model, dtype=case["precision"])
        parts.append(model)
        return [v.value for v in model.variables]

    values = jax.eval_shape(initialize)
    [model] = parts
    inference = Inference(model, configuration.decoding, case["length"])

    def translate(values, source_ids):
        with keras.StatelessScope(zip(model.variables, values, strict=True)):
            return tuple(
                inference.translate_ids(source_ids, num_best=1, shapes="static")
            )

    divided = PartitionSpec(AXIS)
    # Each device ends its own loop: no device waits for another's sentences.
    function = jax.jit(
        jax.shard_map(
            translate,
            mesh=mesh,
            in_specs=(PartitionSpec(), divided),
            out_specs=divided,
            check_vma=False,
        )
    )
    place = placed(mesh)
    ids = jax.ShapeDtypeStruct((case["rows"], case["length"]), "int32")
    shapes = place(values, PartitionSpec()), place(ids, divided)
    sizes = {"weights": sum(x.size * x.dtype.itemsize for x in values)}
    return function, shapes, sizes


if __name__ == "__main__":
    os.environ.update(ENVIRONMENT)
    main()
