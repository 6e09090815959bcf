"""Every block of code of the research pages runs, as those of the pages of the library do."""

from __future__ import annotations

from site_pages import RESEARCH_PAGES, page_checks

(
    test_every_block_says_its_language,
    test_the_code_of_the_page_runs,
    test_the_slow_code_of_the_page_runs,
    test_the_program_understands_the_command,
) = page_checks(RESEARCH_PAGES)
