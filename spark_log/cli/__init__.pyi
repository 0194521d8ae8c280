from .errors import run as run
from .format import Output as Output
from .format import print_note as print_note
from .main import main as main
from .option_groups import with_option_groups as with_option_groups
from .properties import parse_pairs as parse_pairs
from .root import Root as Root
from .time_window import TimeWindow as TimeWindow
