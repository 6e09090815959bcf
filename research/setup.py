"""Builds the wheel with the stored results of all studies, gzipped beside the code that reads them."""

import gzip
import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithResults(build_py):
    """Also writes ``hessmap_research/results/*.json.gz``; an editable install reads ``results/`` itself."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        target = Path(self.build_lib) / "hessmap_research" / "results"
        shutil.rmtree(target, ignore_errors=True)  # of an earlier build: a study may have another name since
        target.mkdir(parents=True)
        for path in sorted((Path(__file__).parent / "results").glob("*.json")):
            content = gzip.compress(path.read_bytes(), mtime=0)  # equal results give equal bytes
            (target / f"{path.name}.gz").write_bytes(content)


setup(cmdclass={"build_py": BuildWithResults})
