"""The explorer: everything that hessmap knows, in a browser on the same machine."""

from hessmap.errors import require_extra

require_extra("fastapi", "web")
require_extra("uvicorn", "web")
