"""Two promises that only a device can show. Prints one JSON object a line, and fails where one is broken.

`steady`: the driver's count of the process's bytes is the same in every step of a long training, from the second on.
`crowded`: while another process holds nearly all of the device, the answer names what is left and who holds the rest, and nothing crashes.

    python3 benches/gpu/promises.py steady|crowded --memfit target/release/memfit
"""

import argparse
import json
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


def train(memfit, job, *arguments):
    command = [memfit, "train", job, "--device", "cuda", "--json", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=150)


def steady(memfit):
    done = train(memfit, os.path.join(HERE, "resnet50.toml"), "--batch", "64", "--budget", "8GiB", "--steps", "1000",
                 "--precision", "mixed_bfloat16")
    events = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    used = [event["bytes_used"] for event in events if event.get("event") == "step"]
    ends = [event for event in events if event.get("event") == "end"]
    result = {"promise": "steady", "steps": len(used), "bytes": sorted(set(used[1:])), "first": used[:1]}
    if done.returncode != 0:
        result["error"] = done.stderr.strip()[-300:]
    holds = len(used) == 1000 and len(set(used[1:])) == 1
    return result, holds and ends[0]["bytes_peak_predicted"] == ends[0]["bytes_peak_measured"]


def crowded(memfit):
    import torch

    free, _ = torch.cuda.mem_get_info()
    held = torch.empty(free - 7 * 2**28, dtype=torch.uint8, device="cuda")
    done = train(memfit, os.path.join(HERE, "resnet50.toml"), "--batch", "64", "--budget", "4GiB", "--steps", "2")
    answer = done.stderr.strip()
    del held
    return {"promise": "crowded", "exit": done.returncode, "answer": answer[-400:]}, done.returncode > 0 and "other processes hold" in answer


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("promise", choices=["steady", "crowded"])
    parser.add_argument("--memfit", default="memfit")
    options = parser.parse_args()
    result, holds = {"steady": steady, "crowded": crowded}[options.promise](options.memfit)
    print(json.dumps({**result, "holds": holds}), flush=True)
    sys.exit(0 if holds else 1)
