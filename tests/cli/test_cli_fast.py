"""`export`, `benchmark policy` and `--backend`: what they print, and what they refuse."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from robolearn.cli.main import main

pytestmark = pytest.mark.long


def run(capsys: pytest.CaptureFixture, *args: Any) -> dict[str, Any]:
    capsys.readouterr()
    assert main([*map(str, args), "--json"]) == 0
    return json.loads(capsys.readouterr().out.splitlines()[-1])


def test_what_is_exported_is_evaluated_as_the_run_is(bc: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    file = tmp_path / "new" / "bc.onnx"
    made = run(capsys, "export", "--policy", bc, "--out", file)
    assert made["bytes"] == file.stat().st_size and made["max_difference"] < 1e-4
    assert made["inputs"] == {"objects": [12], "proprio": [17], "noise": [4, 7]}
    assert main(["export", "--policy", str(bc), "--out", str(file)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "takes objects 12, proprio 17, noise 4 x 7" in said and f"next robolearn evaluate --policy {file}" in said
    asked = ("evaluate", "--task", "lift", "--episodes", 8, "--worlds", 8)
    wanted = run(capsys, *asked, "--policy", bc)
    found = run(capsys, *asked, "--policy", file)
    same_file = run(capsys, *asked, "--policy", bc, "--backend", "onnx")
    assert wanted["success"] == found["success"] == same_file["success"]
    # Physics does not forgive a difference of another size than rounding over some ten chunks.
    assert found["return"]["mean"] == pytest.approx(wanted["return"]["mean"], rel=0.05, abs=0.05)


def test_latencies_of_each_network_and_backend(capsys: pytest.CaptureFixture) -> None:
    asked = ("--networks", "flow_mlp_1", "--backends", "torch", "onnx", "--reduced", "--repeats", 2)
    result = run(capsys, "benchmark", "policy", *asked)
    rows = {(row["network"], row["backend"], row["precision"]): row for row in result["latencies"]}
    assert set(rows) == {
        ("flow_mlp_1", backend, precision)
        for backend, precision in (
            ("torch", "float32"), ("torch", "bfloat16"), ("onnx", "float32"), ("onnx", "int8"),
        )
    }  # fmt: skip
    assert result["decisions"] == 40 and result["threads"] == 1
    for row in rows.values():
        assert 0 < row["latency_ms"]["p50"] <= row["latency_ms"]["p99"] < 1000 and row["steps"] == 1
    assert rows["flow_mlp_1", "torch", "float32"]["max_difference"] == 0.0
    assert 0 < rows["flow_mlp_1", "onnx", "float32"]["max_difference"] < 1e-4


def test_latency_of_a_policy_of_ones_own(bc: Path, capsys: pytest.CaptureFixture) -> None:
    result = run(capsys, "benchmark", "policy", "--policy", bc, "--backends", "torch", "--repeats", 1)
    (row,) = result["latencies"]
    assert row["network"] == str(bc) and row["steps"] == 4 and row["cameras"] == 0


def test_bad_input_is_one_line(bc: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    other = tmp_path / "not.onnx"
    other.write_text("text")
    for args, says in (
        (("export", "--policy", bc, "--out", tmp_path / "policy"), "a name that ends in .onnx"),
        (("export", "--policy", other, "--out", tmp_path / "x.onnx"), "which is exported"),
        (("export", "--policy", tmp_path / "none", "--out", tmp_path / "x.onnx"), "no such folder"),
        (("export", "--policy", bc, "--out", tmp_path / "x.onnx", "--tolerance", "0"), "more than 0"),
        (("export", "--policy", bc, "--out", tmp_path / "x.onnx", "--tolerance", "1e-12"), "largest difference"),
        (("benchmark", "policy", "--networks", "resnet"), "available: flow_mlp_1"),
        (("benchmark", "policy", "--networks"), "--networks"),
        (("benchmark", "policy", "--repeats", "0"), "at least 1"),
        (("benchmark", "policy", "--policy", other), "a file"),
        (("evaluate", "--policy", bc, "--backend", "onnx", "--precision", "bfloat16"), "available: float32, int8"),
        (
            ("evaluate", "--policy", bc, "--backend", "onnx", "--device", "cuda"),
            "auto or cpu: it computes there",
        ),
        (("evaluate", "--policy", other), "one that onnxruntime does not run"),
        (("evaluate", "--policy", tmp_path / "none.onnx"), "no such file"),
        (("evaluate", "--policy", "lerobot:none", "--backend", "compile"), "--backend, --precision"),
        (("deploy", "--policy", bc, "--precision", "int8"), "--precision with --backend torch"),
        (("finetune", "--policy", other, "--task", "lift", "--out", tmp_path / "rl"), "a file"),
    ):
        capsys.readouterr()
        assert main([*map(str, args)]) == 2, args
        err = capsys.readouterr().err
        assert says in err and err.count("\n") == 1, (args, err)
    assert not (tmp_path / "x.onnx").exists() and not (tmp_path / "rl").exists()
