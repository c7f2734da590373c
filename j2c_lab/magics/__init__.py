"""`%j2c` and `%%j2c`, for the user's kernel: standard library and IPython only.

The kernel belongs to the user's packages, so nothing of the engine is imported here: the work is
done by `j2c … --json` in a process of the lab's own Python (`command`, `process`), whose events
are folded into one small picture (`view`, `terminal`) that is drawn as HTML or text (`html`,
`text`).
"""

from j2c_lab.magics.result import MagicRun, RunDetachedError, RunFailedError

__all__ = ["MagicRun", "RunDetachedError", "RunFailedError"]
