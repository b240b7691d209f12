"""How long planning takes: residual networks of growing depth, at half of their unconstrained activation memory.

    cargo build --release
    python3 benches/planning.py

Every block is Conv2D, BatchNormalization and ReLU with a sum over the block, so that nothing can be split and the planner has
to recompute. Nothing is trained. Goals on 2 cores: 1,000 nodes 0.3 s, 10,000 nodes 3 s, 50,000 nodes 20 s, and the first plan that
fits (`--first`) in a tenth of that, the search for the smallest budget included.
"""

import json
import os
import subprocess
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MEMFIT = os.path.join(ROOT, "target", "release", "memfit")


def job(blocks: int) -> str:
    """A job file of so many residual blocks."""
    lines = ["[model]", 'outputs = ["last"]', "[[model.layers]]", 'class = "InputLayer"', 'name = "sum_0"']
    lines += ["shape = [16, 16, 8]"]

    def layer(kind: str, name: str, inputs: str, rest: str = "") -> None:
        lines.extend(["[[model.layers]]", f'class = "{kind}"', f'name = "{name}"', f"inputs = {inputs}", rest])

    for index in range(blocks):
        conv = 'filters = 8\nkernel_size = 3\npadding = "same"\nuse_bias = false'
        layer("Conv2D", f"conv_{index}", f'["sum_{index}"]', conv)
        layer("BatchNormalization", f"norm_{index}", f'["conv_{index}"]')
        layer("ReLU", f"relu_{index}", f'["norm_{index}"]')
        layer("Add", f"sum_{index + 1}", f'["sum_{index}", "relu_{index}"]')
    layer("GlobalAveragePooling2D", "pool", f'["sum_{blocks}"]')
    layer("Dense", "last", '["pool"]', "units = 10")
    lines += ["[train]", 'loss = "mse"', 'optimizer = "sgd"', "batch = 256", "steps = 1", "[memory]"]
    return "\n".join(lines + ['budget = "1TiB"'])


def plan(path: str, *arguments: str) -> dict:
    command = [MEMFIT, "plan", path, "--json", *arguments]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main() -> None:
    print("| nodes | whole batch | at half of the activations | recomputed | time of a step | first plan that fits | its step |")
    print("|---|---|---|---|---|---|---|")
    for blocks in (90, 910, 4545):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "job.toml")
            with open(path, "w") as file:
                file.write(job(blocks))
            whole = plan(path)
            stays = sum(whole["held"][kind] for kind in ("weights", "optimizer"))
            half = whole["bytes_runtime"] + stays + (whole["bytes_peak"] - stays) // 2
            tight = plan(path, "--budget", str(half))
            first = plan(path, "--budget", str(half), "--first")
            print(
                f"| {whole['nodes']:,} | {whole['seconds_planning']:.2f} s | {tight['seconds_planning']:.2f} s "
                f"| {tight['nodes_recomputed']:,} | {tight['time_relative']:.1%} "
                f"| {first['seconds_planning']:.3f} s | {first['time_relative']:.1%} |"
            )


if __name__ == "__main__":
    main()
