from .gateway import Gateway as Gateway
from .server import GatewayServer as GatewayServer
from .workers import run_workers as run_workers
