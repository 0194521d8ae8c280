from .confirmation import is_confirmed as is_confirmed
from .errors import HELP_NAMES as HELP_NAMES
from .errors import PROGRAM_VARIABLE as PROGRAM_VARIABLE
from .errors import ProcessExit as ProcessExit
from .errors import run as run
from .examples import with_examples as with_examples
from .keyboard import quit_key as quit_key
from .sigterm import exit_on_sigterm as exit_on_sigterm
