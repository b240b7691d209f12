"""Whether the planner's times are true: predicted beside measured step time of recomputing, on networks that are trained.

    python3 -m venv .venv && .venv/bin/pip install tensorflow==2.21.*
    cargo build --release
    .venv/bin/python benches/run_time.py [--steps 5] [--rounds 2]

Three networks of keras.applications at a reduced image size, batch 8, SGD: without a limit, and at 50 and 30 % of their
activation memory. A ratio is of a step's time over that of the step without a limit. Runs are interleaved, each a fresh process,
so that what else the machine does falls on all of them alike; the measured time is the median of all steps behind the
first of each run, and beside it their minimum, which a busy machine disturbs less. Memory is that of the whole process (VmHWM) under its budget, and the arena's peak as predicted and as measured.
"""

import argparse
import json
import os
import statistics
import subprocess
import tempfile

os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="")

import keras

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MEMFIT = os.environ.get("MEMFIT", os.path.join(ROOT, "target", "release", "memfit"))
SHARES = (None, 0.5, 0.3)
# Nodes are timed for a few seconds at each start, until all are, or this often.
MOST_STARTS = 6
MIB = 2**20


def networks() -> dict:
    applications = keras.applications
    return {
        "ResNet-50, 96×96": applications.ResNet50(weights=None, input_shape=(96, 96, 3)),
        "MobileNetV2, 96×96": applications.MobileNetV2(weights=None, input_shape=(96, 96, 3)),
        "DenseNet-121, 64×64": applications.DenseNet121(weights=None, input_shape=(64, 64, 3)),
    }


def memfit(environment: dict, *arguments: str) -> str:
    command = [MEMFIT, *arguments, "--json"]
    return subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout


def budgets(job: str, environment: dict) -> dict:
    """The line for each share of the activations, and the plan's own word on it."""
    whole = json.loads(memfit(environment, "plan", job))
    stays = sum(whole["held"][kind] for kind in ("weights", "optimizer"))
    plans = {}
    for share in SHARES:
        line = whole["budget"]
        if share is not None:
            line = whole["bytes_runtime"] + stays + int((whole["bytes_peak"] - stays) * share)
        for _ in range(MOST_STARTS):
            plan = json.loads(memfit(environment, "plan", job, "--budget", str(line)))
            if plan["seconds_measuring"] == 0:
                break
        plans[share] = (line, plan)
    return plans


def train(job: str, line: int, steps: int, environment: dict) -> tuple:
    output = memfit(environment, "train", job, "--budget", str(line), "--steps", str(steps))
    events = [json.loads(text) for text in output.splitlines()]
    return [event["seconds"] for event in events if event["event"] == "step"][1:], events[-1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=2)
    arguments = parser.parse_args()
    print(f"load before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    print("| network | activations | predicted | measured, median | minimum | ms a step | VmHWM of budget, MiB | peak predicted = measured |")
    print("|---|---|---|---|---|---|---|---|")
    for name, model in networks().items():
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "model.json"), "w") as file:
                file.write(model.to_json())
            job = os.path.join(folder, "job.toml")
            with open(job, "w") as file:
                file.write('[model]\nfile = "model.json"\n[train]\nloss = "sparse_categorical_crossentropy"\n')
                file.write('optimizer = "sgd"\nbatch = 8\nsteps = 1\n[memory]\nbudget = "8GiB"\n')
            # Costs are measured anew, and not those of another day's load.
            environment = dict(os.environ, XDG_CACHE_HOME=folder)
            plans = budgets(job, environment)
            seconds = {share: [] for share in SHARES}
            ends = {}
            for _ in range(arguments.rounds):
                for share in SHARES:
                    more, ends[share] = train(job, plans[share][0], arguments.steps, environment)
                    seconds[share] += more
        medians = {share: statistics.median(times) for share, times in seconds.items()}
        for share in SHARES:
            (line, plan), end = plans[share], ends[share]
            assert end["vm_hwm"] <= line, f"{name}: {end['vm_hwm']} of {line}"
            same = end["bytes_peak_predicted"] == end["bytes_peak_measured"]
            print(
                f"| {name} | {f'{share:.0%}' if share else 'all'} | {plan['time_relative'] - 1:+.1%} "
                f"| {medians[share] / medians[None] - 1:+.1%} | {min(seconds[share]) / min(seconds[None]) - 1:+.1%} "
                f"| {medians[share] * 1e3:.0f} "
                f"| {end['vm_hwm'] / MIB:.1f} of {line / MIB:.1f} | {'yes' if same else 'NO'}, {end['bytes_peak_measured']:,} |",
                flush=True,
            )
    print(f"load behind: {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
