"""Losses of every example over ten steps, on the GPU beside the CPU. Prints one JSON object a line, and fails where they part.

Products are not rounded to TF32, so that both devices add up the same products. Images are cut and batches are small: the CPU has to
keep up.

    python3 benches/gpu/beside_cpu.py --memfit target/release/memfit examples/*.toml
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile

# How far losses may be apart behind ten steps, relative to the loss.
APART = 1e-3


def small(path, folder):
    """The same job with images of at most 128 pixels, and a switch for TF32."""
    text = open(path, encoding="utf-8").read()
    text = re.sub(r"\b(256|512|1024), *(256|512|1024), *3\b", "128, 128, 3", text)
    text = text.replace("[train]", "[train]\ntf32 = false", 1)
    job = os.path.join(folder, os.path.basename(path))
    with open(job, "w", encoding="utf-8") as file:
        file.write(text)
    return job


def losses(memfit, job, device):
    command = [memfit, "train", job, "--device", device, "--steps", "10", "--batch", "4", "--budget", "8GiB", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        raise RuntimeError(f"on {device}: {done.stderr.strip()[-300:]}")
    events = (json.loads(line) for line in done.stdout.splitlines() if line.startswith("{"))
    return [event["loss"] for event in events if event.get("event") == "step"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--memfit", default="memfit")
    parser.add_argument("jobs", nargs="+")
    options = parser.parse_args()
    parted = 0
    with tempfile.TemporaryDirectory() as folder:
        for path in options.jobs:
            name, job = os.path.basename(path), small(path, folder)
            try:
                cpu, gpu = (losses(options.memfit, job, device) for device in ("cpu", "cuda"))
                apart = max(abs(a - b) / max(abs(a), 1e-9) for a, b in zip(cpu, gpu, strict=True))
                result = {"job": name, "steps": len(cpu), "apart": apart, "loss": [cpu[-1], gpu[-1]]}
                parted += not apart <= APART
            except (RuntimeError, ValueError, subprocess.TimeoutExpired) as error:
                result, parted = {"job": name, "error": str(error)[:300]}, parted + 1
            print(json.dumps(result), flush=True)
    sys.exit(1 if parted else 0)


if __name__ == "__main__":
    main()
