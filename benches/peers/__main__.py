"""Trains the nine cases with memfit, TensorFlow, PyTorch and JAX on this machine, and prints time and memory beside the goals.

    cargo build --release
    python3 benches/peers --install             once: a virtual environment for each framework, under target/peers
    python3 benches/peers                       every case: by estimate 40 minutes on two quiet cores
    python3 benches/peers --quick               the small cases, few steps, nothing compiled: a few minutes
    python3 benches/peers --only mlp lenet      some cases
    python3 benches/peers --json                all figures, for programs

README.md beside this file says what is measured, and how. The exit code is 1 where losses do not agree.
"""

import argparse
import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.dont_write_bytecode = True

from cases import CASES, GIB, MIB, Case
from process import Limits, NoFigure, Run, available, train, why

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PACKAGES = {"tensorflow": ["tensorflow==2.21.*"], "torch": ["torch"], "jax": ["jax[cpu]"]}
VARIANTS = {
    "TensorFlow": ("tensorflow", "function"),
    "PyTorch eager": ("torch", "eager"),
    "PyTorch channels_last": ("torch", "channels_last"),
    "PyTorch compiled": ("torch", "compiled"),
    "JAX": ("jax", "jitted"),
}
FREE, LINED = "memfit", "memfit at the goal's line"
# Rounding differs from the first step on, and Adam makes much of little gradients.
TOLERANCES = (1e-4, 1e-2, 1e-2)
LARGE_BATCH, SMALL_BATCH = 256, 2
# No framework's largest batch of large images is sought from here on.
MOST_BATCH = 65
# Seconds for a case's model and batch.
PREPARING = 300


class Bench:
    def __init__(self, arguments: argparse.Namespace):
        self.arguments = arguments
        self.cores = sorted(os.sched_getaffinity(0))[: arguments.threads]
        self.pythons = {name: python_of(name, arguments) for name in PACKAGES}

    def limits(self, environment: dict, limit_bytes: int = 0) -> Limits:
        return Limits(self.arguments.seconds, self.cores, limit_bytes, environment)

    def prepare(self, name: str, batch: int, folder: Path, *what: str) -> None:
        command = [self.pythons["tensorflow"], HERE / "prepare.py", name, str(batch), folder, *what]
        try:
            done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=PREPARING)
        except subprocess.TimeoutExpired:
            raise NoFigure(f"could not be prepared in {PREPARING} s") from None
        if done.returncode != 0:
            raise NoFigure(f"could not be prepared: {why(done.returncode, done.stderr)}; a Python with Keras is needed: --install or --tensorflow")
        # What was written is on the disk before anybody is timed, and not on its way there meanwhile.
        os.sync()

    def framework(self, variant: str, case: Case, folder: Path, steps: int, warm_up: int, limit_bytes: int = 0) -> Run:
        package, kind = VARIANTS[variant]
        options = {"variant": kind, "steps": steps, "loss": case.loss, "learning_rate": case.learning_rate}
        command = [self.pythons[package], "-B", HERE / f"in_{package}.py", folder, json.dumps(options)]
        environment = {
            "TF_ENABLE_ONEDNN_OPTS": "1", "OMP_NUM_THREADS": str(len(self.cores)), "TORCHINDUCTOR_CACHE_DIR": str(folder / "compiled"),
        }
        return train(command, self.limits(environment, limit_bytes), warm_up)

    def memfit(self, job: list, folder: Path, steps: int, warm_up: int, line: int = 0, costs: str = "measured") -> Run:
        command = [self.arguments.memfit, "train", *job, "--steps", steps, "--threads", len(self.cores), "--json", "--costs", costs]
        command += ["--budget", line] if line else []
        # Nodes are timed anew, and not on another day.
        return train(command, self.limits({"XDG_CACHE_HOME": str(folder)}), warm_up)

    def counted(self, folder: Path, batch: int) -> int:
        """What memfit says that the process will hold where it may hold all that it likes; nothing where it says nothing."""
        command = [self.arguments.memfit, "plan", folder / "model.keras", "--batch", batch, "--threads", len(self.cores), "--json"]
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
        told = json.loads(done.stdout or "{}")
        return told.get("bytes_runtime", 0) + told.get("bytes_arena", 0)

    def variants(self, case: Case) -> list:
        chosen = []
        for variant, (package, kind) in VARIANTS.items():
            if package not in self.arguments.frameworks:
                continue
            if kind == "channels_last" and len(case.shape) != 3:
                continue
            if kind == "compiled" and (self.arguments.quick or not shutil.which("g++")):
                continue
            chosen.append(variant)
        return chosen

    def row(self, name: str) -> dict:
        """All runs of a case: a `Run`, or the reason why there is none."""
        case, runs = CASES[name], {}
        steps = self.arguments.steps or (min(case.steps, 6) if self.arguments.quick else case.steps)
        with tempfile.TemporaryDirectory(dir=self.arguments.scratch) as path:
            folder = Path(path)
            if case.largest_in:
                return self.largest(name, folder)
            self.prepare(name, case.batch, folder, "model")
            flops = json.loads((folder / "nodes.json").read_text())["flops_a_row"]
            for _ in range(self.arguments.rounds):
                self.round(name, folder, steps, runs)
        for run in runs.values():
            if isinstance(run, Run):
                run.batch = case.batch
        return {"runs": runs, "flops": flops * case.batch, "differing": losses_differing(runs)}

    def round(self, name: str, folder: Path, steps: int, runs: dict) -> None:
        """Every run of a case once. What an earlier round has is kept where it is better."""
        case, now = CASES[name], {}
        for variant in self.variants(case):
            self.note(name, now, variant, lambda: self.framework(variant, case, folder, steps, 2))
        job = prepared_job(folder, case.batch)
        self.note(name, now, FREE, lambda: self.memfit(job, folder, steps, 2))
        keep(runs, now)
        least, own = best(runs, "bytes"), runs[FREE]
        line, lined = int(case.goal_memory * runs[least].bytes) if least else 0, {}
        if isinstance(runs.get(LINED), Run) and runs[LINED].bytes > line:
            del runs[LINED]
        if not least or not isinstance(own, Run) or own.bytes <= line:
            return
        self.note(name, lined, LINED, lambda: self.memfit(job, folder, steps, 2, line))
        if not isinstance(lined[LINED], Run):
            # A line counts the program's files in full, though a training touches a part of them. Where that is what it fails
            # by, one that is higher by as much as the free run counted and did not hold; timing nodes would fill it.
            line += max(0, self.counted(folder, case.batch) - own.bytes)
            self.note(name, lined, LINED, lambda: self.memfit(job, folder, steps, 2, line, "analytic"))
        keep(runs, lined)

    def largest(self, name: str, folder: Path) -> dict:
        """Every framework at its largest batch inside the limit; `seconds` are those of an image, at the batch where they are fewest."""
        case, runs = CASES[name], {}
        self.prepare(name, SMALL_BATCH, folder, "model")
        flops = json.loads((folder / "nodes.json").read_text())["flops_a_row"]
        limit = min(case.largest_in, available())
        for variant in self.variants(case):
            self.note(name, runs, variant, lambda: self.search(name, variant, folder, limit))
        batch = max((run.batch for run in runs.values() if isinstance(run, Run)), default=8)
        self.prepare(name, batch, folder)
        least = best(runs, "bytes")
        line = int(case.goal_memory * runs[least].bytes) if least else 0
        job = prepared_job(folder, batch)
        self.note(name, runs, FREE, lambda: an_image(self.memfit(job, folder, case.steps, 1, limit), batch))
        if line:
            self.note(name, runs, LINED, lambda: an_image(self.memfit(job, folder, case.steps, 1, line), batch))
        # Made-up rows: a file of them would be 3 GB.
        made_up = [ROOT / "examples" / "large-images.toml", "--batch", LARGE_BATCH]
        many = {}
        self.note(name, many, f"memfit, batch {LARGE_BATCH}", lambda: an_image(self.memfit(made_up, folder, 2, 1, 2 * GIB), LARGE_BATCH))
        # Losses are compared at a batch that all can train, and at memfit's own lines.
        self.prepare(name, SMALL_BATCH, folder)
        small = {variant: run for variant, run in runs.items() if variant in VARIANTS}
        job = prepared_job(folder, SMALL_BATCH)
        self.note(name, small, f"memfit, batch {SMALL_BATCH}", lambda: an_image(self.memfit(job, folder, 3, 1, limit), SMALL_BATCH))
        own = {variant: run for variant, run in runs.items() if variant not in VARIANTS}
        return {"runs": runs, "flops": flops, "many": next(iter(many.values())), "differing": losses_differing(small) + losses_differing(own)}

    def search(self, name: str, variant: str, folder: Path, limit: int) -> Run:
        """The largest batch that trains inside the limit."""
        case, done, tried = CASES[name], {}, {}

        def attempt(batch: int) -> bool:
            if batch not in tried:
                self.prepare(name, batch, folder)
                try:
                    done[batch] = an_image(self.framework(variant, case, folder, case.steps - 1, 1, limit), batch)
                    tried[batch] = milliseconds(done[batch].seconds)
                except NoFigure as reason:
                    tried[batch] = str(reason)
                say(name, f"{variant}, batch {batch}", tried[batch])
            return batch in done

        if not attempt(SMALL_BATCH) and not attempt(1):
            raise NoFigure(tried[1])
        low, high = max(done), SMALL_BATCH if SMALL_BATCH not in done else MOST_BATCH
        while low + 1 < high:
            # A guess by bytes, and never far beyond what is known: the first bytes of a small batch may be those of something else.
            before = max((batch for batch in done if batch < low), default=0)
            bytes_each = max((done[low].bytes - done[before].bytes) / (low - before), MIB) if before else MIB
            guess = low + int((limit - done[low].bytes - done[low].bytes_imported) / bytes_each)
            batch = max(low + 1, min(guess, 2 * low if high == MOST_BATCH else (low + high) // 2))
            if attempt(batch):
                low = batch
            else:
                high = batch
        largest = done[max(done)]
        losses = done[SMALL_BATCH].losses if SMALL_BATCH in done else []
        return dataclasses.replace(largest, seconds=min(run.seconds for run in done.values()), losses=losses)

    def note(self, name: str, runs: dict, variant: str, measure) -> None:
        start = time.monotonic()
        try:
            runs[variant] = measure()
            said = f"{milliseconds(runs[variant].seconds)}, {runs[variant].bytes / MIB:.0f} MiB"
        except NoFigure as reason:
            runs[variant] = said = str(reason)
        say(name, variant, f"{said}   ({time.monotonic() - start:.0f} s)")


def say(name: str, variant: str, said: str) -> None:
    """A line while it runs."""
    print(f"  {name:14} {variant:32} {said}", file=sys.stderr, flush=True)


def prepared_job(folder: Path, batch: int) -> list:
    """memfit's arguments for what prepare.py wrote."""
    return [folder / "model.keras", "--data", f"{folder / 'x.npy'},{folder / 'y.npy'}", "--batch", batch]


def an_image(run: Run, batch: int) -> Run:
    return dataclasses.replace(run, seconds=run.seconds / batch, batch=batch)


def keep(runs: dict, now: dict) -> None:
    """Takes over the runs of another round: of a framework the least time and the least memory, of memfit, whose one run has to hold
    both goals, the faster run."""
    for variant, run in now.items():
        before = runs.get(variant)
        if isinstance(run, Run) and isinstance(before, Run):
            if variant in VARIANTS:
                least = {figure: min(getattr(run, figure), getattr(before, figure)) for figure in ("seconds", "bytes", "first_step")}
                run = dataclasses.replace(run, **least)
            elif before.seconds <= run.seconds:
                continue
        if isinstance(run, Run) or before is None:
            runs[variant] = run


def best(runs: dict, figure: str) -> str:
    """The framework with the least of it; empty where none has a figure."""
    having = {variant: run for variant, run in runs.items() if variant in VARIANTS and isinstance(run, Run)}
    return min(having, key=lambda variant: getattr(having[variant], figure), default="")


def ours(runs: dict):
    """memfit's own run: the one that holds the memory goal, where there is one."""
    return runs[LINED] if isinstance(runs.get(LINED), Run) else runs[FREE]


def losses_differing(runs: dict) -> list:
    """The runs whose losses are not those of the first, which is TensorFlow's where it ran."""
    having = {variant: run for variant, run in runs.items() if isinstance(run, Run)}
    first, differing = next(iter(having), None), []
    for variant, run in having.items():
        for step, (one, other, tolerance) in enumerate(zip(run.losses, having[first].losses, TOLERANCES), 1):
            if not abs(one - other) <= tolerance * abs(other):
                differing.append(f"{variant} {one:.6g}, {first} {other:.6g} at step {step}")
                break
    return differing


def milliseconds(seconds: float) -> str:
    return f"{seconds:.2f} s" if 1 <= seconds else f"{seconds * 1e3:.1f} ms" if seconds < 0.1 else f"{seconds * 1e3:.0f} ms"


def cells(name: str, row: dict) -> list:
    """A line of the table."""
    case, runs, own = CASES[name], row["runs"], ours(row["runs"])
    fastest, least = best(runs, "seconds"), best(runs, "bytes")
    line = [case.title]
    line.append(f"{fastest} {milliseconds(runs[fastest].seconds)}; {least} {runs[least].bytes / MIB:.0f} MiB" if fastest else "none")
    if not isinstance(own, Run):
        return [*line, own, "–", f"≤ {case.goal_time}", "–", f"≤ {case.goal_memory}", agreement(row)]
    line.append(f"{milliseconds(own.seconds)}, {own.bytes / MIB:.0f} MiB")
    for figure, of, goal in (("seconds", fastest, case.goal_time), ("bytes", least, case.goal_memory)):
        ratio = getattr(own, figure) / getattr(runs[of], figure) if of else None
        line += ["–" if ratio is None else f"{ratio:.2f}" + ("" if ratio <= goal else " ✗"), f"≤ {goal}"]
    return [*line, agreement(row)]


def agreement(row: dict) -> str:
    if row["differing"]:
        return f"differ: {'; '.join(row['differing'])}"
    return "agree" if 2 <= sum(isinstance(run, Run) for run in row["runs"].values()) else "nothing to compare"


def show(bench: Bench, rows: dict, peak) -> None:
    print(f"{len(bench.cores)} cores of {processor()}, load {os.getloadavg()[0]:.1f}; {versions(bench)}")
    print("time of a step (of an image where batches differ), memory above the imported framework's, memfit's whole process; ✗ misses its goal\n")
    print("| case | best of the three | memfit | time | goal | memory | goal | losses |\n|---|---|---|---|---|---|---|---|")
    for name, row in rows.items():
        print(f"| {' | '.join(cells(name, row))} |")
    print("\n| case | " + " | ".join([*VARIANTS, FREE, LINED]) + " |\n|---" + "|---" * (len(VARIANTS) + 2) + "|")
    for name, row in rows.items():
        texts = []
        for variant in [*VARIANTS, FREE, LINED]:
            run = row["runs"].get(variant, "–")
            batch = f" at {run.batch}" if isinstance(run, Run) and CASES[name].largest_in else ""
            texts.append(f"{milliseconds(run.seconds)}, {run.bytes / MIB:.0f} MiB{batch}" if isinstance(run, Run) else run)
        print(f"| {name} | {' | '.join(texts)} |")
    print()
    for name, row in rows.items():
        many = row.get("many")
        if isinstance(many, Run):
            fastest = best(row["runs"], "seconds")
            beside = f", {fastest} {1 / row['runs'][fastest].seconds:.2f}" if fastest else ""
            print(f"{name}: batch {LARGE_BATCH} in {many.bytes / MIB:.0f} MiB: {1 / many.seconds:.2f} images/s{beside}")
        elif many:
            print(f"{name}: batch {LARGE_BATCH}: {many}")
    print(f"peak of FMA: {peak:.0f} GFLOP/s (goal: 0.75 of it)" if peak else "peak of FMA: not measured, no C compiler")
    for name, row in rows.items():
        own, fastest = ours(row["runs"]), best(row["runs"], "seconds")
        if CASES[name].convolutions and isinstance(own, Run):
            parts = [(FREE, own)] + ([(fastest, row["runs"][fastest])] if fastest else [])
            rates = [(who, row["flops"] / run.seconds / 1e9) for who, run in parts]
            print(f"  {name:14} " + ", ".join(f"{who} {rate:.0f} GFLOP/s" + (f" = {rate / peak:.2f}" if peak else "") for who, rate in rates))
    if "reduced" in rows:
        starts = [f"{who} {run.first_step:.1f} s" for who, run in rows["reduced"]["runs"].items() if isinstance(run, Run)]
        print(f"start of training, reduced network (goal: memfit ≤ 1 s): {', '.join(starts)}")
    print(f"binary: {os.path.getsize(bench.arguments.memfit) / 1e6:.1f} MB (goal: under 25 MB)")


def measured_peak(threads: int):
    """GFLOP/s of this machine's fused multiply-adds; none without a C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if not compiler:
        return None
    with tempfile.TemporaryDirectory() as folder:
        program = str(Path(folder, "peak"))
        options = ["-O3", "-march=native", "-ffp-contract=fast", "-pthread"]
        if subprocess.run([compiler, *options, str(HERE / "peak.c"), "-o", program], capture_output=True).returncode != 0:
            return None
        return float(subprocess.run([program, str(threads)], check=True, capture_output=True, text=True).stdout)


def processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":")[1].strip()
    return "this machine"


def versions(bench: Bench) -> str:
    told = []
    for name, python in bench.pythons.items():
        command = [python, "-c", f"import importlib.metadata as m; print(m.version('{name}'))"]
        done = subprocess.run(command, capture_output=True, text=True)
        told.append(f"{name} {done.stdout.strip() if done.returncode == 0 else 'missing'}")
    return ", ".join(told)


def python_of(name: str, arguments: argparse.Namespace) -> str:
    """The Python of a framework: the one that was named, that of its environment, or the running one."""
    installed = Path(arguments.environments, name, "bin", "python")
    return getattr(arguments, name) or (str(installed) if installed.exists() else sys.executable)


def install(folder: Path) -> None:
    """A virtual environment for each framework, so that their demands on NumPy do not meet."""
    for name, packages in PACKAGES.items():
        python = folder / name / "bin" / "python"
        if not python.exists():
            subprocess.run([sys.executable, "-m", "venv", str(folder / name)], check=True)
        command = [str(python), "-m", "pip", "install", "-q", "numpy", *packages]
        if name == "torch":
            # The build without CUDA is a tenth of the size; where its index cannot be reached, the usual one does as well.
            if subprocess.run([*command, "--index-url", "https://download.pytorch.org/whl/cpu"]).returncode == 0:
                continue
        subprocess.run(command, check=True)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small cases, few steps, nothing compiled")
    parser.add_argument("--only", nargs="+", metavar="CASE", choices=CASES, help=", ".join(CASES))
    parser.add_argument("--json", action="store_true", help="all figures, for programs")
    parser.add_argument("--steps", type=int, help="steps of every run but those of the largest batch, instead of the case's; the first two warm up")
    parser.add_argument("--rounds", type=int, default=1, help="how often all runs of a case but that of the largest batch are made, in turn; the least counts [default: 1]")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--seconds", type=float, default=900, help="the limit of every run")
    parser.add_argument("--memfit", default=os.environ.get("MEMFIT", str(ROOT / "target" / "release" / "memfit")))
    parser.add_argument("--scratch", help="the folder of models and batches [default: the system's]")
    parser.add_argument("--environments", default=str(ROOT / "target" / "peers"), metavar="FOLDER")
    parser.add_argument("--frameworks", nargs="+", choices=PACKAGES, default=list(PACKAGES), help="beside these alone")
    parser.add_argument("--install", action="store_true", help="install the three frameworks there, and stop")
    for name in PACKAGES:
        parser.add_argument(f"--{name}", metavar="PYTHON", help="a Python that has it")
    return parser.parse_args()


def main() -> int:
    arguments = parse()
    if arguments.steps is not None and arguments.steps <= 2:
        raise SystemExit("error: the first two steps warm up\n  hint   `--steps 3` or more")
    if arguments.rounds < 1:
        raise SystemExit("error: nothing runs in no round\n  hint   `--rounds 1` or more")
    if arguments.install:
        return install(Path(arguments.environments)) or 0
    if not Path(arguments.memfit).exists():
        raise SystemExit(f"error: no {arguments.memfit}\n  hint   `cargo build --release`, or `--memfit FILE`")
    # Ended by a signal, it still ends what it started and removes its files.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    bench = Bench(arguments)
    names = arguments.only or [name for name, case in CASES.items() if case.quick or not arguments.quick]
    peak = measured_peak(len(bench.cores))
    rows = {}
    for name in names:
        try:
            rows[name] = bench.row(name)
        except NoFigure as reason:
            say(name, "all", str(reason))
            rows[name] = {"runs": {FREE: str(reason)}, "flops": 0, "differing": []}
    if arguments.json:
        plain = lambda value: dataclasses.asdict(value) if isinstance(value, Run) else str(value)
        print(json.dumps({"peak_gflops": peak, "load": os.getloadavg(), "cases": rows}, default=plain, indent=1))
    else:
        show(bench, rows, peak)
    return 1 if any(row["differing"] for row in rows.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
