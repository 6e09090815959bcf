"""Every block of code of the site runs: Python from top to bottom of a page, commands as far as they are read."""

from __future__ import annotations

import pytest

from site_pages import PAGES, page_checks, understood

(
    test_every_block_says_its_language,
    test_the_code_of_the_page_runs,
    test_the_slow_code_of_the_page_runs,
    test_the_program_understands_the_command,
) = page_checks(PAGES)


def test_a_command_that_does_not_exist_is_noticed() -> None:
    with pytest.raises(Exception, match="No such option"):
        understood("hessmap predict 64-10 --input-rnk 3")
