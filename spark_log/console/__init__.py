"""The console: a website that shows one root, served by ``spark-log console`` (extra ``console``).

`create_app` returns the ASGI application. Each page is a `View`: the same answer as HTML and, under
``/api``, as JSON. `docs/console.md` has the rules for every request.
"""

from spark_log.util.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
