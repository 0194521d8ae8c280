from .location import SERVICES as SERVICES
from .location import ObjectLocation as ObjectLocation
from .object_store import ObjectStore as ObjectStore
