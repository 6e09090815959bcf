"""What people type into the search field, and the page that must come first.

The words become tags of their page, which the search ranks above titles and text. After the build the site's own search
is asked for each of them (``search_first.mjs``, with node): a page that does not come first ends the build. The index
that is read is the one that pages opened from files use.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.pages import Page

SEARCHES = {
    "start/install.md": ("install", "pip"),
    "start/first-map.md": ("tutorial", "getting started"),
    "start/numbers.md": ("sharpness", "effective dimension"),
    "guides/own-loss.md": ("custom loss", "own loss", "objective"),
    "guides/large-models.md": ("cuda", "gpu", "mps", "out of memory", "bfloat16"),
    "guides/several-gpus.md": ("several gpus", "ddp", "fsdp", "tensor parallel", "distributed"),
    "guides/spectrum.md": ("spectrum", "top eigenvalues", "density"),
    "guides/language-model.md": ("language model", "transformer", "hugging face", "gpt2"),
    "guides/models.md": ("lora", "timm", "torchvision", "torch.compile"),
    "guides/training.md": ("track training", "lightning", "callback"),
    "guides/learning-rates.md": ("learning rate", "edge of stability"),
    "guides/divergence.md": ("diverge", "loss spike"),
    "guides/checkpoints.md": ("checkpoint", "compare checkpoints"),
    "guides/compression.md": ("pruning", "quantisation", "quantization"),
    "guides/loss-planes.md": ("loss landscape", "loss surface", "mode connectivity"),
    "guides/kfac.md": ("kfac", "ekfac", "preconditioner"),
    "guides/influence.md": ("influence", "data attribution"),
    "guides/laplace.md": ("laplace", "uncertainty"),
    "guides/merging.md": ("ewc", "merging", "continual learning"),
    "guides/certificate.md": ("certificate", "generalisation bound"),
    "guides/solve.md": ("solve", "inverse hessian", "conjugate gradient"),
    "concepts/fisher.md": ("fisher", "ggn"),
    "concepts/learning-coefficients.md": ("rlct", "learning coefficient"),
    "concepts/pac-bayes.md": ("pac-bayes",),
    "concepts/lanczos.md": ("lanczos",),
    "command-line.md": ("command line", "cli"),
    "comparison.md": ("pyhessian", "curvlinops", "alternatives"),
    "benchmarks.md": ("benchmark", "speed"),
}


def on_page_markdown(text: str, page: Page, **_: Any) -> str:
    if page.file.src_uri in SEARCHES:
        page.meta["tags"] = list(SEARCHES[page.file.src_uri])
    return text


def on_post_build(config: MkDocsConfig) -> None:
    from mkdocs.exceptions import PluginError
    from mkdocs.plugins import get_plugin_logger

    node = shutil.which("node")
    if node is None:
        get_plugin_logger(__name__).info("node is not installed: what the search finds first is not checked")
    elif wrong := misplaced(Path(config.site_dir), node):
        raise PluginError("the search finds another page first:\n" + "\n".join(wrong))


on_post_build.mkdocs_priority = -200  # type: ignore[attr-defined]  # after the plugin that writes search_index.js


def misplaced(site: Path, node: str) -> list[str]:
    """The searches of a built site whose first result is not the page that it must be."""
    wanted = {words: page.removesuffix(".md") + ".html" for page, searches in SEARCHES.items() for words in searches}
    script = Path(__file__).with_name("search_first.mjs")
    done = subprocess.run([node, script, site, *wanted], capture_output=True, text=True, check=True)
    first: dict[str, str] = json.loads(done.stdout)
    return [f"{words}: {first[words]}, not {page}" for words, page in wanted.items() if first[words] != page]
