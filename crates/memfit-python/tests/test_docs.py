"""The walkthrough runs as it is written."""

import re
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "keras.md"


def test_every_block_of_the_walkthrough_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```(python|sh)\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert 14 < len(blocks)
    names, done = {"__name__": "walkthrough"}, []
    for kind, block in blocks:
        if kind == "python":
            # A block after a command reads what the command wrote.
            if "further" not in block or (tmp_path / "further.keras").exists():
                exec(compile(block, str(PAGE), "exec"), names)
        elif block.startswith("pip install"):
            # The package that is tested was installed by this very line.
            assert block.split("#")[0].split()[-1] in (ROOT / "tools" / "python-check").read_text()
        elif shutil.which("memfit"):
            done.append(subprocess.run(["bash", "-euc", block], check=True, capture_output=True, text=True).stdout)
    text = capsys.readouterr().out
    assert "it fits from" in text and "largest batch without a split" in text and "were there before" in text
    assert (tmp_path / "trained.keras").exists()
    assert not done or "Total params" in done[0]
