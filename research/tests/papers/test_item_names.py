"""Names of items: lists, ranges, panels, plurals and what stands before a colon find the item that holds them."""

from __future__ import annotations

import pytest

from hessmap.errors import UnknownName
from hessmap_research.papers import Item, Paper, papers

KINDS = {
    *(
        "theorem",
        "proposition",
        "lemma",
        "corollary",
        "fact",
        "claim",
        "conjecture",
        "remark",
        "definition",
        "property",
    ),
    *(
        "assumption",
        "introduction",
        "example",
        "equation",
        "algorithm",
        "figure",
        "table",
        "section",
        "appendix",
        "beyond",
    ),
}


def paper_with(*names: str) -> Paper:
    items = tuple(Item(0, name, "c.", "verified") for name in names)
    return Paper(0, "Somebody 2020", "On ranks", "layers.md", "Do ranks grow?", "Yes.", "x.png", items)


@pytest.mark.parametrize(
    ("asked", "item"),
    [
        ("Figure 7", "Figures 7, 8"),
        ("figure 8", "Figures 7, 8"),
        ("Figure 17", "Figures 16 to 18"),
        ("Figure 18", "Figures 16 to 18"),
        ("Figure S19", "Figures S18 to S20"),
        ("Figures S20, S21", "Figures S18 to S20"),
        ("Table 3", "Tables 2 to 5"),
        ("Theorem 6.1", "Theorems 6.1, H.1: PAC-Bayes bound"),
        ("Theorem H.1", "Theorems 6.1, H.1: PAC-Bayes bound"),
        ("Lemma B.1", "Lemma B.1"),
        ("B.1", "Lemma B.1"),
        ("S9.4", "S9.4: the tangent kernel"),
        ("Section S9.4", "S9.4: the tangent kernel"),
        ("S9", "S9.4: the tangent kernel"),
        ("S9.1.3", "S9.1.2, S9.1.3: other losses"),
        ("Section 8 (iii)", "Section 8 (i), (iii): effective parameters"),
        ("Section 8", "Section 8 (i), (iii): effective parameters"),
        ("Figure 3", "Figure 3 B, C"),
        ("Figure 3c", "Figure 3 B, C"),
        ("Figure 3 d", "Figures 3 b to e"),
        ("Figure 4b", "Figure 4"),
        ("equation 268", "Theorem G.1, equation 268"),
        ("Definition F.1", "Equations 265, 266, Definition F.1"),
        ("Appendix C", "Equations 16 to 18, Appendix C"),
        ("Appendix B", "Appendices A, B"),
        ("Property 3", "Properties 1 to 4 of a rank"),
        ("properties 1 TO 4 of a rank", "Properties 1 to 4 of a rank"),
        ("Conjecture", "Conjecture: decoupling"),
        ("beyond", "beyond: images, padding, pooling"),
        ("Section 6: deep", "Section 6: deeper networks"),
        ("Fig. 17", "Figures 16 to 18"),
        ("Figs 17-20", "Figures 16 to 18"),
        ("Eq. (8)", "Equation 8"),
        ("Thm 3", "Theorem 3"),
        ("Figures 1 and 8", "Figures 7, 8"),
    ],
)
def test_a_name_finds_the_item_that_holds_it(asked: str, item: str) -> None:
    assert [found.item for found in paper_with(item).items_named(asked)] == [item]


@pytest.mark.parametrize(
    ("asked", "item"),
    [
        ("Figure 9", "Figures 7, 8"),
        ("Figure 1", "Figures 16 to 18"),
        ("Figure 15", "Figures 16 to 18"),
        ("Figure 19", "Figures 16 to 18"),
        ("Figure 18", "Figures S18 to S20"),
        ("Figure 3", "Figure 31"),
        ("Figure 31", "Figure 3"),
        ("Figure 3a", "Figure 3 B, C"),
        ("Table 7", "Figures 7, 8"),
        ("Lemma B.1", "Lemma B.10"),
        ("Theorem 4.1", "Theorem 4"),
        ("Section 6: wider", "Section 6: deeper networks"),
        ("Figure 3 of them", "Figure 3"),
        ("Figures 4 to 2", "Figure 3"),
        ("Figure 3333333333", "Figure 333"),
        ("", "Figure 3"),
        (",", "Figure 3"),
        (":", "Conjecture: decoupling"),
    ],
)
def test_a_name_does_not_find_what_it_does_not_mean(asked: str, item: str) -> None:
    with pytest.raises(UnknownName, match="the item must be one of paper 0; got "):
        paper_with(item).items_named(asked)


def test_several_items_of_a_name_are_all_found() -> None:
    paper = paper_with("Figure 3 A", "Figure 3 B, C", "Figure 30", "Section 3: biases", "Section 3: depth")
    assert [item.item for item in paper.items_named("Figure 3")] == ["Figure 3 A", "Figure 3 B, C"]
    assert [item.item for item in paper.items_named("Section 3")] == ["Section 3: biases", "Section 3: depth"]
    assert len(paper.items_named("3")) == 4
    assert [item.item for item in paper.items_named("Section 3: depth")] == ["Section 3: depth"]


@pytest.mark.parametrize("paper", papers(), ids=lambda paper: paper.name)
def test_every_name_of_the_registry_finds_itself_alone_and_has_a_kind(paper: Paper) -> None:
    for item in paper.items:
        assert paper.items_named(item.item) == (item,)
        assert item.kind in KINDS, item.item
        assert item in paper.items_named(item.kind)
