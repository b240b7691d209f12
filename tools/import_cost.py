"""What `import memfit` costs: time and memory over a bare interpreter that has NumPy, and the bytes of the installed engine.

    .venv/bin/python tools/import_cost.py

Goals: 150 ms, 60 MB in all, an engine of less than 15 MB. Exits with 1 where memory or bytes are missed, which no busy machine changes.
"""

import json
import subprocess
import sys
from pathlib import Path

MEASURE = """
import json, resource, sys, time
start = time.perf_counter()
import memfit
seconds = time.perf_counter() - start
engine = sum(file.stat().st_size for file in __import__("pathlib").Path(memfit.__file__).parent.rglob("*") if file.is_file())
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(json.dumps({"seconds": seconds, "bytes": peak, "package": engine, "keras": "keras" in sys.modules}))
"""


def main():
    runs = [json.loads(subprocess.run([sys.executable, "-c", MEASURE], check=True, capture_output=True, text=True).stdout)
            for _ in range(5)]
    seconds, peak, package = min(r["seconds"] for r in runs), max(r["bytes"] for r in runs), runs[0]["package"]
    print(f"import memfit: {seconds * 1e3:.0f} ms of 150, {peak / 1e6:.0f} MB resident of 60, package {package / 1e6:.1f} MB of 15")
    if 60e6 < peak or 15e6 < package or runs[0]["keras"]:
        sys.exit("importing costs more than it may")


if __name__ == "__main__":
    main()
