from .delta_rows import open_table as open_table
from .delta_sink import DeltaSink as DeltaSink
from .destination import Destination as Destination
from .destination import Sink as Sink
