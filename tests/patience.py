"""How long a test waits for another process or a browser before it says that it hangs: no test is slow by design, but a
machine may run ten other things. What is seen sooner ends sooner."""

from __future__ import annotations

PATIENCE = 600.0  # seconds
