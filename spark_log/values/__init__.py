"""The values of a topic as columns (``table.value.format``), and values made from columns again."""

from spark_log.util.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
