"""The cases of the GPU benchmark with memfit: time of a step and memory of the process. Prints one JSON object a line.

Rows are drawn on the device, so that no copy from the host is timed: the others keep their rows there too. The time is the median of
the second half of the steps; the memory is the driver's count for the process, context and libraries included.

    python3 benches/gpu/memfit_cases.py --memfit target/release/memfit
"""

import argparse
import json
import os
import statistics
import subprocess

HERE = os.path.dirname(os.path.abspath(__file__))
EXAMPLES = os.path.join(HERE, "..", "..", "examples")

# name, job, arguments
CASES = [
    ("large images, f32, batch 64", "large-images.toml", ["--batch", "64", "--budget", "4GiB", "--steps", "12"]),
    ("large images, f32, batch 256", "large-images.toml", ["--batch", "256", "--budget", "6GiB", "--steps", "8"]),
    ("six convolutions, TF32, batch 32", "six-convolutions.toml", ["--batch", "32", "--budget", "4GiB", "--steps", "20"]),
    ("six convolutions, bf16, batch 128", "six-convolutions.toml",
     ["--batch", "128", "--budget", "5GiB", "--steps", "16", "--precision", "mixed_bfloat16"]),
    ("ResNet-50 224, bf16, batch 256", "resnet50.toml",
     ["--batch", "256", "--budget", "8GiB", "--steps", "16", "--precision", "mixed_bfloat16"]),
    ("ResNet-50 224, TF32, batch 128", "resnet50.toml", ["--batch", "128", "--budget", "8GiB", "--steps", "16"]),
    ("GPT-2 124M, 1,024 tokens, bf16, batch 16", "gpt2.toml",
     ["--batch", "16", "--budget", "6GiB", "--steps", "12", "--precision", "mixed_bfloat16"]),
    ("large images, f32, batch 256, in 16 GiB", "large-images.toml", ["--batch", "256", "--budget", "16GiB", "--steps", "10"]),
    ("ResNet-50 224, bf16, batch 1024, in 16 GiB", "resnet50.toml",
     ["--batch", "1024", "--budget", "16GiB", "--steps", "10", "--precision", "mixed_bfloat16"]),
    ("GPT-2 124M, 1,024 tokens, bf16, batch 64, in 16 GiB", "gpt2.toml",
     ["--batch", "64", "--budget", "16GiB", "--steps", "8", "--precision", "mixed_bfloat16"]),
]


def find(job):
    for folder in (HERE, EXAMPLES, "examples"):
        path = os.path.join(folder, job)
        if os.path.exists(path):
            return path
    return None


def run(memfit, name, job, arguments):
    path = find(job)
    if path is None:
        return {"case": name, "error": f"{job} is not here"}
    command = [memfit, "train", path, "--device", "cuda", "--json", *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=150)
    except subprocess.TimeoutExpired:
        return {"case": name, "error": "took more than 150 s"}
    events = []
    for line in done.stdout.splitlines():
        try:
            events.append(json.loads(line))
        except ValueError:
            pass
    steps = [event for event in events if event.get("event") == "step"]
    ends = [event for event in events if event.get("event") == "end"]
    if done.returncode != 0 or not ends:
        return {"case": name, "error": done.stderr.strip()[-400:] or f"exit code {done.returncode}"}
    times = [step["seconds"] * 1e3 for step in steps[len(steps) // 2:]]
    used = [step["bytes_used"] for step in steps[3:]]
    return {
        "case": name,
        "milliseconds": statistics.median(times),
        "gibibytes": max(used) / 2**30,
        "flat": len(set(used)) == 1,
        "predicted": ends[0]["bytes_peak_predicted"],
        "measured": ends[0]["bytes_peak_measured"],
        "milliseconds_expected": ends[0]["seconds_step"] * 1e3,
        "loss": [steps[0]["loss"], steps[-1]["loss"]],
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--memfit", default="memfit")
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    for name, job, arguments in CASES:
        if options.only in name:
            print(json.dumps(run(options.memfit, name, job, arguments)), flush=True)
