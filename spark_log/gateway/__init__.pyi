from .event_loop import run_event_loop as run_event_loop
from .gateway import Gateway as Gateway
from .security import delete_user as delete_user
from .security import set_password as set_password
from .security import user_names as user_names
from .server import GatewayServer as GatewayServer
from .workers import run_workers as run_workers
