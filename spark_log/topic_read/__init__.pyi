from .bounds import ReadBounds as ReadBounds
from .plan import FilePart as FilePart
from .plan import PartitionRead as PartitionRead
from .plan import TopicRead as TopicRead
from .plan import plan_read as plan_read
from .plan import plan_version as plan_version
from .topic_scan import scan as scan
from .topic_scan import scan_read as scan_read
