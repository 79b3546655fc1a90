"""What is put into the page, and the images of the same log."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simulator.pictures.history import read_history
from simulator.pictures.hues import hues, rgb
from simulator.pictures.image import write_image
from simulator.pictures.pack import pack
from simulator.pictures.page import SCRIPTS, asset, write_html
from simulator.pictures.raster import IDLE, UNAVAILABLE, paint
from simulator.pictures.told import tell
from tenure.domain.refusal import Refusal
from tests.unit.simulator.pictures.five_runs import LEAVES, ended, history, lines, started, submitted


def packed(told: list[dict[str, Any]]) -> dict[str, Any]:
    return pack(tell(told, report={}, budgets={"a": 1}, kinds=None))


def test_columns_tell_the_runs() -> None:
    data = packed(lines())
    assert data["unit_ms"] == 1_000
    assert np.cumsum(data["runs"]["start_delta"]).tolist() == [0, 600, 3_600, 5_400, 9_000]
    assert data["runs"]["length"] == [5_400, 6_600, 3_600, 3_600, 5_400]
    assert data["runs"]["guard"] == [3_600, 0, 3_600, 1_800, 3_600]
    assert [data["runs"]["names"][by] for by in data["runs"]["by"]] == ["j2", "h001", "h001", "", ""]
    assert data["runs"]["numbers"][0] == [0.5, "a"]
    assert data["runs"]["reasons"][data["runs"]["why"][0]]["keys"] == ("ratio", "level")


def test_rows_count_all_gpus_and_neighbouring_hosts_are_one_span() -> None:
    told = [
        started("j.1", 0, {"h0": [0, 1], "h1": [0, 1], "h2": [1]}, protected_until=9),
        started("k.1", 0, {"h2": [0]}, protected_until=9),
    ]
    assert packed(told)["spans"] == {"n": [2, 1], "row": [0, 5, 4], "count": [4, 1, 1]}


def test_instants_between_seconds_are_kept() -> None:
    data = packed([started("j.1", 0.25, {"h0": [0]}, protected_until=1.5), ended("j.1", 2.125, "failed", reason="x")])
    assert (data["unit_ms"], data["runs"]["start_delta"], data["runs"]["length"]) == (1, [250], [1_875])


def test_steps_keep_long_logs_short() -> None:
    told = [{"t": 0, "type": "capacity", "host": "h0", "gpus": 1}, {"t": 37 * 86_400, "type": "host_state"}]
    series = packed(told)["series"]
    assert (series["step_hours"], len(series["entitled"][0]), len(series["parts"]["idle"])) == (6, 148, 888)
    assert sum(series["entitled"][0]) == pytest.approx(37 * 24)


def test_the_page_is_whole_and_asks_for_nothing(tmp_path: Path) -> None:
    told = [*lines(), submitted("</script><b>", 14_400, budget="a", gpus=1, min_runtime_s=60)]
    write_html(tmp_path / "page.html", lines=told, report={"policy": "fair & <square>"}, budgets={})
    page = (tmp_path / "page.html").read_text()
    assert "policy fair &amp; &lt;square&gt;</h1>" in page
    data = json.loads(re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)[0])
    assert data["jobs"]["ids"][-1] == "</script><b>"
    assert "default-src 'none'" in page
    assert not re.search(r"""(src|href)=["']|@import|url\((?!#)""", page)
    assert not re.search(r"@(title|style|data|script)@", page)
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


def test_the_same_log_is_the_same_page(tmp_path: Path) -> None:
    for name in ("one.html", "two.html", "one.svg", "two.svg"):
        write = write_html if name.endswith("html") else write_image
        write(tmp_path / name, lines=lines(), report={}, budgets={})
    for ending in ("html", "svg"):
        assert (tmp_path / f"one.{ending}").read_bytes() == (tmp_path / f"two.{ending}").read_bytes()


def test_every_script_is_packaged() -> None:
    assert all(asset(name) for name in (*SCRIPTS, "report.css", "report.html"))


def test_an_empty_log_makes_a_page_and_an_image(tmp_path: Path) -> None:
    write_html(tmp_path / "page.html", lines=[], report={}, budgets={"a": 1})
    write_image(tmp_path / "image.png", lines=[], report={}, budgets={"a": 1})
    assert (tmp_path / "image.png").read_bytes().startswith(b"\x89PNG")


def test_an_image_of_no_known_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match=r"end it in \.png or \.svg"):
        write_image(tmp_path / "image", lines=lines(), report={}, budgets={})


def test_the_timeline_is_painted_by_gpu_and_time() -> None:
    """Four hours on 240 columns, a GPU on 10 rows: colours where by hand they must be."""
    picture = paint(history(), width=240, height=80)
    solid = {leaf: rgb(hue.light) for leaf, hue in zip(LEAVES, hues(LEAVES), strict=True)}

    def at(gpu: int, minute: int) -> set[tuple[int, int, int]]:
        """The colours around the middle of a GPU's row at a minute."""
        return {tuple(pixel) for pixel in picture[gpu * 10 + 2 : gpu * 10 + 8, minute].tolist()}

    assert at(0, 30) == {solid["a"]}
    assert solid["a"] not in at(0, 75) and len(at(0, 75)) == 2, "past its minimum: pale, with stripes"
    assert at(3, 89) == {(0xD1, 0x24, 0x2F)}, "preempted at 1:30"
    assert at(2, 100) == {solid["b/x"]}
    assert at(7, 70) == {solid["b/y"]}
    assert at(6, 30) == {rgb(IDLE)}
    assert rgb(UNAVAILABLE) in at(5, 150)


def test_a_team_has_a_hue_and_its_leaves_are_shades() -> None:
    found = hues(["a", "b/x", "b/y", "c"])
    assert [hue.team for hue in found] == ["a", "b", "b", "c"]
    assert len({hue.light for hue in found} | {hue.dark for hue in found}) == 8


def test_many_budgets_and_hosts_are_drawn(tmp_path: Path) -> None:
    told = [{"t": 0, "type": "capacity", "host": f"h{number}", "gpus": 1} for number in range(100)]
    told += [submitted(f"j{n}", n, budget=f"t{n % 12}/b{n}", gpus=1, min_runtime_s=60) for n in range(60)]
    told += [started(f"j{n}.1", 60 + n, {f"h{n}": [0]}, protected_until=120 + n) for n in range(60)]
    write_image(tmp_path / "image.png", lines=told, report={}, budgets={})
    assert len(read_history(told, budgets={}).leaves) == 60
