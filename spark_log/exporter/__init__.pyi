from .canary import CANARY_TOPIC as CANARY_TOPIC
from .canary import Canary as Canary
from .canary import CanaryRecord as CanaryRecord
from .root_exporter import RootExporter as RootExporter
from .root_exporter import Scrape as Scrape
