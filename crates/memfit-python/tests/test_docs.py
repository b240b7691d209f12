"""The walkthrough runs as it is written."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[3] / "docs" / "keras.md"


def test_every_block_of_the_walkthrough_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert 6 < len(blocks)
    names = {}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), names)
    text = capsys.readouterr().out
    assert "it fits from" in text and "largest batch in one piece" in text and "were there before" in text
    assert (tmp_path / "trained.keras").exists()
