"""The explorer: everything that hessmap knows, in a browser on the same machine."""

from hessmap.errors import require_package

require_package("fastapi", "fastapi")
require_package("uvicorn", "uvicorn")
