"""Files of cached models that are not what they should be: one sentence, and nothing in them is run."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest
import torch

from hessmap.errors import DataFileError
from hessmap_research.runner.model_cache import cached_model, model_key, use_models_folder
from run_marker import Marker


@pytest.mark.parametrize("kind", ["settings of half a text", "no hash", "a list", "a pickle"])
def test_a_cached_model_with_odd_files_is_refused_and_not_run(kind: str, tmp_path: Path) -> None:
    use_models_folder(tmp_path)
    try:
        cached_model({"seed": 1}, lambda _: {"weight": torch.zeros(2)})
        settings, model = (tmp_path / model_key({"seed": 1}) / name for name in ("settings.json", "model.pt"))
        if kind == "a pickle":
            from hashlib import sha256

            model.write_bytes(pickle.dumps(Marker(tmp_path / "was-run")))
            settings.write_text(json.dumps({"sha256": sha256(model.read_bytes()).hexdigest()}))
        else:
            settings.write_text({"settings of half a text": '{"sha', "no hash": "{}", "a list": "[1]"}[kind])
        with pytest.raises(DataFileError, match="a cached model must be as it was written"):
            cached_model({"seed": 1}, lambda _: {"weight": torch.zeros(2)})
    finally:
        use_models_folder(None)
    assert not (tmp_path / "was-run").exists()
