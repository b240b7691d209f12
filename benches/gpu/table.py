"""One table of what memfit, PyTorch and JAX took: reads the files of JSON lines that it is given, the column's name before each.

    python3 benches/gpu/table.py memfit memfit.jsonl "PyTorch eager" eager.jsonl …
"""

import json
import sys


def cell(result):
    if result is None:
        return "–"
    if "error" in result:
        return "failed: " + result["error"].splitlines()[0][:60]
    reserved = result.get("gibibytes_reserved")
    held = f"{result['gibibytes']:.1f}" + (f" ({reserved:.1f})" if reserved else "")
    return f"{result['milliseconds']:.1f} ms, {held} GiB"


def main(pairs):
    columns, cases = [], []
    for name, path in zip(pairs[::2], pairs[1::2]):
        known = {}
        try:
            lines = open(path, encoding="utf-8").read().splitlines()
        except OSError:
            lines = []
        for line in lines:
            try:
                result = json.loads(line)
            except ValueError:
                continue
            known[result["case"]] = result
            if result["case"] not in cases:
                cases.append(result["case"])
        columns.append((name, known))
    print("| case | " + " | ".join(name for name, _ in columns) + " |")
    print("|---" * (len(columns) + 1) + "|")
    for case in cases:
        print(f"| {case} | " + " | ".join(cell(known.get(case)) for _, known in columns) + " |")


main(sys.argv[1:])
