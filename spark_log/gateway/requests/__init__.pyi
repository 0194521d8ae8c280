from .api_versions import unsupported_version_response as unsupported_version_response
from .table import HANDLERS as HANDLERS
from .table import Handler as Handler
