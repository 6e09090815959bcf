"""The glossary: its headings keep their anchors, and the first use of a term on a page is a link to it."""

from __future__ import annotations

import runpy

import pytest

from site_pages import ROOT

HOOK = runpy.run_path(str(ROOT / "docs" / "hooks" / "glossary_links.py"))
TERMS = {"rank": "rank", "numerical rank": "numerical-rank", "`H_L`": "hessian"}


@pytest.mark.parametrize(
    ("written", "built"),
    [
        ('### Hessian { #hessian data-also="loss Hessian,`H_L`" }', "### Hessian { #hessian }"),
        ('### GF(P) { #gfp data-also="`GF(P)`,finite field" }', "### GF(P) { #gfp }"),
        ('### Store { #store data-also="stores" }', "### Store { #store }"),
        ("### Risk { #risk }", "### Risk { #risk }"),
        ("### Track", "### Track"),
    ],
)
def test_a_heading_keeps_its_anchor_alone(written: str, built: str) -> None:
    """Code in the list of other forms would keep the anchor from being read."""
    assert HOOK["with_anchors_alone"](f"a\n\n{written}\n\nb\n") == f"a\n\n{built}\n\nb\n"


@pytest.mark.parametrize(
    ("written", "built"),
    [
        ("<p>rank, rank</p>", '<p><a class="term" href="g#rank">rank</a>, rank</p>'),
        ("<p>Numerical rank</p>", '<p><a class="term" href="g#numerical-rank">Numerical rank</a></p>'),
        ("<p><code>H_L</code></p>", '<p><code><a class="term" href="g#hessian">H_L</a></code></p>'),
        ('<h2>rank</h2><a href="x">rank</a><pre>rank</pre>', '<h2>rank</h2><a href="x">rank</a><pre>rank</pre>'),
    ],
)
def test_the_first_use_of_a_term_is_a_link(written: str, built: str) -> None:
    assert HOOK["linked"](written, TERMS, "g") == built
